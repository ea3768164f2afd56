// Conveniences of the pages: the price while you type, the two ways of writing a question kept in step, copy
// buttons, and column names to click. Without JavaScript the buttons "Show the price" and "Ask" do the same.
(() => {
  "use strict";
  document.documentElement.classList.add("scripted");

  // Copy buttons and sortable tables, also those of a part of the page that was loaded later.
  function enhance(root) {
    for (const button of root.querySelectorAll("button.copy")) {
      button.hidden = false;
      button.addEventListener("click", async () => {
        const text = document.getElementById(button.dataset.copy).textContent;
        try {
          await navigator.clipboard.writeText(text);
          button.textContent = "Copied";
        } catch {
          // Without permission to use the clipboard: select the text, so that the keyboard copies it.
          getSelection().selectAllChildren(document.getElementById(button.dataset.copy));
          button.textContent = "Selected: press Ctrl+C";
        }
        setTimeout(() => { button.textContent = "Copy"; }, 2000);
      });
    }

    // Headings of a table of numbers become buttons that sort its rows: by the number, or as they first stood.
    for (const table of root.querySelectorAll("table.sortable")) {
      const body = table.tBodies[0], rows = [...body.rows];
      const heads = [...table.tHead.rows[table.tHead.rows.length - 1].querySelectorAll("th:not([data-unsorted])")];
      const numberOf = (row, i) => {
        const order = row.cells[i].dataset.order;
        return order === undefined ? rows.indexOf(row) : order === "" ? -Infinity : Number(order);
      };
      for (const head of rows.length > 1 ? heads : []) {
        const sorter = document.createElement("button");
        sorter.type = "button";
        const axis = head.querySelector("svg");
        sorter.append(...[...head.childNodes].filter((node) => node !== axis));
        head.prepend(sorter);
        sorter.addEventListener("click", () => {
          const isNumber = head.classList.contains("number");
          const now = head.getAttribute("aria-sort");
          const next = now === null ? (isNumber ? "descending" : "ascending") : now === "ascending" ? "descending" : "ascending";
          for (const other of heads) other.removeAttribute("aria-sort");
          head.setAttribute("aria-sort", next);
          const sign = next === "ascending" ? 1 : -1;
          const at = head.cellIndex;
          body.append(...[...rows].sort((a, b) => sign * (numberOf(a, at) - numberOf(b, at)) || 0));
        });
      }
    }
  }
  enhance(document);

  // Jobs that have not ended are followed: their numbers in place, everything once a state has changed.
  const FIRST_WAIT = 1000, LONGEST_WAIT = 10000;
  const statesOf = (page) => [...page.querySelectorAll("[data-state]")].map((one) => one.id + one.dataset.state).join();
  async function followJobs(wait) {
    if (!document.querySelector("[data-open]")) return;
    let next = Math.min(LONGEST_WAIT, 1.25 * wait);
    if (!document.hidden) {
      try {
        const answer = await fetch(location.href, { credentials: "same-origin" });
        if (answer.redirected || answer.status === 404) { location.reload(); return; }
        const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
        if (answer.ok && statesOf(fresh) !== statesOf(document)) {
          const followed = document.querySelector("[data-follow]");
          followed.replaceChildren(...fresh.querySelector("[data-follow]").childNodes);
          enhance(followed);
          next = FIRST_WAIT;
        } else if (answer.ok) {
          const parts = fresh.querySelectorAll("[data-live]");
          document.querySelectorAll("[data-live]").forEach((part, i) => {
            if (parts[i] && part.innerHTML !== parts[i].innerHTML) part.replaceChildren(...parts[i].childNodes);
          });
        }
      } catch {
        next = LONGEST_WAIT;  // the network is away for a moment
      }
    }
    setTimeout(followJobs, next, next);
  }
  setTimeout(followJobs, FIRST_WAIT, FIRST_WAIT);

  // On a narrow screen the list of columns would take most of the page.
  const fold = document.querySelector(".columns-fold");
  if (fold && matchMedia("(max-width: 62rem)").matches) fold.open = false;

  const form = document.getElementById("ask-form");
  if (!form) return;
  const field = (name) => form.elements[name];
  const price = document.getElementById("price");
  const step = document.getElementById("step");
  const button = document.getElementById("ask-button"), jobButton = document.getElementById("job-button");
  const slider = document.getElementById("slider");
  const limit = Number(slider.dataset.limit);
  const DECADES = 4, STEPS = Number(slider.max);
  const PARTS = ["verb", "of", "where", "by1", "edges1", "by2", "edges2"];

  document.getElementById("slider-field").hidden = !(limit > 0);
  const amountAt = (position) => Number((limit * 10 ** (DECADES * (position / STEPS - 1))).toPrecision(2));
  const positionOf = (amount) =>
    Math.max(0, Math.min(STEPS, Math.round(STEPS * (1 + Math.log10(amount / limit) / DECADES))));
  const describeAmount = (amount, words) => slider.setAttribute("aria-valuetext", words || `${slider.dataset.letter} = ${amount}`);

  slider.addEventListener("input", () => {
    field("exact").value = slider.dataset.currency;
    field("amount").value = String(amountAt(Number(slider.value)));
    describeAmount(field("amount").value);
    schedulePreview();
  });

  function makeElement(tag, words, cls) {
    const element = document.createElement(tag);
    element.textContent = words;
    if (cls) element.className = cls;
    return element;
  }

  function showProblems(problems) {
    for (const place of form.querySelectorAll(".problem")) {
      const name = place.id.replace(/-problem$/, "");
      const problem = problems[name];
      place.replaceChildren();
      place.hidden = !problem;
      if (problem) {
        place.append(problem.message + " ");
        if (problem.hint) place.append(makeElement("span", problem.hint, "nearest"));
      }
      if (field(name) && field(name).setAttribute) {
        if (problem) field(name).setAttribute("aria-invalid", "true");
        else field(name).removeAttribute("aria-invalid");
      }
    }
  }

  function syncInputs(preview) {
    // The input that is not in use follows the one that is, so that typed text is never overwritten.
    const typing = field("source").value;
    if (typing === "sentence") field("sql").value = preview.parts.sql;
    else for (const name of PARTS) field(name).value = preview.parts[name];
    step.replaceChildren(
      makeElement("span", "Read as ", "muted"), makeElement("code", preview.question), makeElement("span", " or ", "muted"),
      makeElement("code", preview.sql));
  }

  let timer = 0, running = null;
  function schedulePreview() {
    clearTimeout(timer);
    price.classList.add("waiting");
    timer = setTimeout(fetchPreview, 350);
  }

  async function fetchPreview() {
    if (running) running.abort();
    running = new AbortController();
    let preview;
    try {
      const answer = await fetch(form.dataset.price, {
        method: "POST", body: new URLSearchParams(new FormData(form)), signal: running.signal,
        headers: { Accept: "application/json" }, credentials: "same-origin",
      });
      if (answer.status === 429) { timer = setTimeout(fetchPreview, 2000); return; }
      preview = answer.ok ? await answer.json() : { errors: { form: {
        message: "The price cannot be shown.", hint: "Your session may have ended: load the page again." } } };
    } catch (problem) {
      if (problem.name !== "AbortError") {
        price.replaceChildren(makeElement("p", "The price cannot be shown right now. Asking works as before.", "under"));
        price.classList.remove("waiting");
      }
      return;
    }
    price.classList.remove("waiting");
    showProblems(preview.errors || {});
    if (preview.price) {
      const lead = makeElement("p", "", "price-lead");
      if (preview.price.margin) lead.append(makeElement("strong", preview.price.margin), ", ");
      lead.append(preview.price.cost);
      price.replaceChildren(lead, makeElement("p", `${preview.price.after} ${preview.price.work}`.trim(), "under"));
      price.classList.add("ready");
      jobButton.hidden = !preview.price.work;
      button.textContent = preview.price.button;
      syncInputs(preview);
      if (preview.price.amount > 0) {
        slider.value = String(positionOf(preview.price.amount));
        describeAmount(preview.price.amount, preview.price.cost);
      }
    } else {
      const form_problem = (preview.errors || {}).form;
      price.replaceChildren(makeElement("p", form_problem ? `${form_problem.message} ${form_problem.hint}`
        : "The price is shown as soon as the question can be read.", "under"));
      price.classList.remove("ready");
      button.textContent = "Ask";
      jobButton.hidden = true;
      step.replaceChildren();
    }
  }

  form.addEventListener("input", (event) => { if (event.target !== slider) schedulePreview(); });
  form.addEventListener("submit", (event) => {
    // Ignore a second click while the first request runs; the service would give it the same answer.
    if (form.dataset.sent) event.preventDefault();
    form.dataset.sent = "yes";
    setTimeout(() => { delete form.dataset.sent; }, 5000);
  });
  addEventListener("pageshow", () => { delete form.dataset.sent; });

  // Names and values of the list become buttons that insert themselves into the field last used.
  let last = field("where");
  for (const name of ["of", "where", "sql"]) field(name).addEventListener("focus", () => { last = field(name); });
  for (const code of document.querySelectorAll(".column-list code")) {
    const element = makeElement("button", code.textContent, code.closest(".levels") ? "insert" : "insert whole");
    element.type = "button";
    element.title = "Insert into the question";
    element.addEventListener("click", () => {
      const target = last.offsetParent ? last : field("source").value === "sql" ? field("sql") : field("where");
      const before = target.value.slice(0, target.selectionStart);
      const gap = before && !/[\s(]$/.test(before) ? " " : "";
      target.setRangeText(gap + code.dataset.write, target.selectionStart, target.selectionEnd, "end");
      target.focus();
      schedulePreview();
    });
    code.replaceWith(element);
  }

  const problemShown = document.querySelector("#form-problem, #ask-form .problem:not([hidden])");
  if (!price.classList.contains("ready") && !problemShown) fetchPreview();
  else if (Number(field("amount").value) > 0 && field("exact").value === slider.dataset.currency)
    slider.value = String(positionOf(Number(field("amount").value)));
})();
