// What a page can do with a script that it also does without one: the price while you type, both ways of writing
// a question in step, copying, and names to click. Without it, "Show the price" and "Ask" do the same.
(() => {
  "use strict";
  document.documentElement.classList.add("scripted");

  for (const button of document.querySelectorAll("button.copy")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      const text = document.getElementById(button.dataset.copy).textContent;
      try {
        await navigator.clipboard.writeText(text);
        button.textContent = "Copied";
      } catch {
        // Without leave to use the clipboard: mark the text, and the keys of the browser copy it.
        getSelection().selectAllChildren(document.getElementById(button.dataset.copy));
        button.textContent = "Marked: press Ctrl+C";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
  }

  // On a narrow screen the list of columns would stand between the question and nothing else.
  const fold = document.querySelector(".columns-fold");
  if (fold && matchMedia("(max-width: 62rem)").matches) fold.open = false;

  const form = document.getElementById("ask-form");
  if (!form) return;
  const field = (name) => form.elements[name];
  const price = document.getElementById("price");
  const step = document.getElementById("step");
  const button = document.getElementById("ask-button");
  const slider = document.getElementById("slider");
  const limit = Number(slider.dataset.limit);
  const DECADES = 4, STEPS = Number(slider.max);
  const PARTS = ["verb", "of", "where", "by1", "edges1", "by2", "edges2"];

  document.getElementById("slider-field").hidden = !(limit > 0);
  const amountAt = (place) => Number((limit * 10 ** (DECADES * (place / STEPS - 1))).toPrecision(2));
  const placeOf = (amount) =>
    Math.max(0, Math.min(STEPS, Math.round(STEPS * (1 + Math.log10(amount / limit) / DECADES))));
  const say = (amount, words) => slider.setAttribute("aria-valuetext", words || `${slider.dataset.letter} = ${amount}`);

  slider.addEventListener("input", () => {
    field("exact").value = slider.dataset.currency;
    field("amount").value = String(amountAt(Number(slider.value)));
    say(field("amount").value);
    later();
  });

  function shown(tag, words, cls) {
    const made = document.createElement(tag);
    made.textContent = words;
    if (cls) made.className = cls;
    return made;
  }

  function complain(problems) {
    for (const place of form.querySelectorAll(".problem")) {
      const name = place.id.replace(/-problem$/, "");
      const problem = problems[name];
      place.replaceChildren();
      place.hidden = !problem;
      if (problem) {
        place.append(problem.message + " ");
        if (problem.hint) place.append(shown("span", problem.hint, "nearest"));
      }
      if (field(name) && field(name).setAttribute) {
        if (problem) field(name).setAttribute("aria-invalid", "true");
        else field(name).removeAttribute("aria-invalid");
      }
    }
  }

  function keepInStep(told) {
    // The way of writing that is not in use follows the one that is; nobody's typing is overwritten.
    const typing = field("source").value;
    if (typing === "sentence") field("sql").value = told.parts.sql;
    else for (const name of PARTS) field(name).value = told.parts[name];
    step.replaceChildren(
      shown("span", "Read as ", "muted"), shown("code", told.question), shown("span", " or ", "muted"),
      shown("code", told.sql));
  }

  let timer = 0, running = null;
  function later() {
    clearTimeout(timer);
    price.classList.add("waiting");
    timer = setTimeout(ask, 350);
  }

  async function ask() {
    if (running) running.abort();
    running = new AbortController();
    let told;
    try {
      const answer = await fetch(form.dataset.price, {
        method: "POST", body: new URLSearchParams(new FormData(form)), signal: running.signal,
        headers: { Accept: "application/json" }, credentials: "same-origin",
      });
      if (answer.status === 429) { timer = setTimeout(ask, 2000); return; }
      told = answer.ok ? await answer.json() : { errors: { form: {
        message: "The price cannot be shown.", hint: "Your session may have ended: load the page again." } } };
    } catch (problem) {
      if (problem.name !== "AbortError") {
        price.replaceChildren(shown("p", "The price cannot be shown right now. Asking works as before.", "under"));
        price.classList.remove("waiting");
      }
      return;
    }
    price.classList.remove("waiting");
    complain(told.errors || {});
    if (told.price) {
      const lead = shown("p", "", "price-lead");
      if (told.price.margin) lead.append(shown("strong", told.price.margin), ", ");
      lead.append(told.price.cost);
      price.replaceChildren(lead, shown("p", told.price.after, "under"));
      price.classList.add("ready");
      button.textContent = told.price.button;
      keepInStep(told);
      if (told.price.amount > 0) {
        slider.value = String(placeOf(told.price.amount));
        say(told.price.amount, told.price.cost);
      }
    } else {
      const form_problem = (told.errors || {}).form;
      price.replaceChildren(shown("p", form_problem ? `${form_problem.message} ${form_problem.hint}`
        : "The price is shown as soon as the question can be read.", "under"));
      price.classList.remove("ready");
      button.textContent = "Ask";
      step.replaceChildren();
    }
  }

  form.addEventListener("input", (event) => { if (event.target !== slider) later(); });
  form.addEventListener("submit", (event) => {
    // A second click while the first is on its way: the service would answer it with the same answer.
    if (form.dataset.sent) event.preventDefault();
    form.dataset.sent = "yes";
    setTimeout(() => { delete form.dataset.sent; }, 5000);
  });
  addEventListener("pageshow", () => { delete form.dataset.sent; });

  // Names and values of the list become buttons that write themselves where somebody was writing.
  let last = field("where");
  for (const name of ["of", "where", "sql"]) field(name).addEventListener("focus", () => { last = field(name); });
  for (const code of document.querySelectorAll(".column-list code")) {
    const made = shown("button", code.textContent, code.closest(".levels") ? "insert" : "insert whole");
    made.type = "button";
    made.title = "Write it into the question";
    made.addEventListener("click", () => {
      const target = last.offsetParent ? last : field("source").value === "sql" ? field("sql") : field("where");
      const before = target.value.slice(0, target.selectionStart);
      const gap = before && !/[\s(]$/.test(before) ? " " : "";
      target.setRangeText(gap + code.dataset.write, target.selectionStart, target.selectionEnd, "end");
      target.focus();
      later();
    });
    code.replaceWith(made);
  }

  const told = document.querySelector("#form-problem, #ask-form .problem:not([hidden])");
  if (!price.classList.contains("ready") && !told) ask();
  else if (Number(field("amount").value) > 0 && field("exact").value === slider.dataset.currency)
    slider.value = String(placeOf(Number(field("amount").value)));
})();
