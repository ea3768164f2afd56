// Suggestions while a question is typed, in the fields that hold a part of it. The service knows the language and
// the schema; one request is made for each word, and its suggestions are narrowed down here while the word grows.
(() => {
  "use strict";
  const form = document.getElementById("ask-form");
  if (!form) return;
  // What stands before the text of a field in a whole question.
  const BEFORE = { sql: "", where: "count where ", of: "sum(" };
  const status = document.createElement("p");
  status.className = "unseen";
  status.setAttribute("role", "status");
  form.append(status);

  // A name that needs quotes is found without them, too.
  const plain = (text) => text.replace(/^"/, "").toLowerCase();

  for (const [name, before] of Object.entries(BEFORE)) attach(form.elements[name], before);

  function attach(field, before) {
    const list = document.createElement("ul");
    list.className = "suggestions";
    list.id = `${field.id}-suggestions`;
    list.hidden = true;
    list.setAttribute("role", "listbox");
    list.setAttribute("aria-label", "Suggestions");
    field.after(list);
    field.removeAttribute("list");
    field.setAttribute("aria-autocomplete", "list");
    field.setAttribute("aria-controls", list.id);
    let start = 0, fetched = null, active = -1, timer = 0;

    const close = () => {
      clearTimeout(timer);
      list.hidden = true;
      list.replaceChildren();
      active = -1;
      field.removeAttribute("aria-activedescendant");
    };

    const mark = (index) => {
      active = index;
      [...list.children].forEach((option, i) => option.setAttribute("aria-selected", String(i === index)));
      if (index < 0) { field.removeAttribute("aria-activedescendant"); return; }
      field.setAttribute("aria-activedescendant", list.children[index].id);
    };

    const accept = (index) => {
      const text = list.children[index].textContent;
      field.setRangeText(text, start, field.selectionStart, "end");
      close();
      field.dispatchEvent(new Event("input", { bubbles: true }));
      close();
      field.focus();
    };

    const show = (options) => {
      const typed = field.value.slice(start, field.selectionStart);
      // Behind a number there is nothing to complete.
      const fitting = !typed && /\d/.test(field.value.charAt(start - 1)) ? []
        : options.filter((one) => plain(one).startsWith(plain(typed)) && one !== typed).slice(0, 10);
      list.replaceChildren(...fitting.map((text, i) => {
        const option = document.createElement("li");
        option.id = `${list.id}-${i}`;
        option.setAttribute("role", "option");
        option.setAttribute("aria-selected", "false");
        option.textContent = text;
        // Before the field loses the focus.
        option.addEventListener("mousedown", (event) => { event.preventDefault(); accept(i); });
        return option;
      }));
      list.hidden = !fitting.length;
      mark(-1);
      status.textContent = fitting.length ? `${fitting.length} suggestion${fitting.length === 1 ? "" : "s"}` : "";
    };

    async function suggest() {
      const text = field.value.slice(0, field.selectionStart);
      if (fetched && text.startsWith(fetched.text) && /^[\p{L}\p{N}_'"]*$/u.test(text.slice(fetched.text.length))) {
        start = fetched.start;
        show(fetched.options);
        return;
      }
      let found;
      try {
        const query = new URLSearchParams({ text: before + text });
        const answer = await fetch(`${form.dataset.complete}?${query}`, { credentials: "same-origin" });
        if (!answer.ok) return;
        found = await answer.json();
      } catch {
        return;
      }
      if (text !== field.value.slice(0, field.selectionStart) || document.activeElement !== field) return;
      fetched = { text, start: Math.max(0, found.start - before.length), options: found.options };
      start = fetched.start;
      show(found.options);
    }

    field.addEventListener("input", (event) => {
      close();
      const last = field.value.slice(0, field.selectionStart).slice(-1);
      if (event.isTrusted && /[\p{L}\p{N}_'"=(,]/u.test(last)) timer = setTimeout(suggest, 120);
    });
    field.addEventListener("blur", close);
    field.addEventListener("keydown", (event) => {
      if (event.key === " " && event.ctrlKey) { event.preventDefault(); suggest(); return; }
      if (list.hidden) return;
      const count = list.children.length;
      if (event.key === "ArrowDown") mark((active + 1) % count);
      else if (event.key === "ArrowUp") mark((active <= 0 ? count : active) - 1);
      else if ((event.key === "Enter" || event.key === "Tab") && active >= 0) accept(active);
      else if (event.key === "Escape") close();
      else return;
      event.preventDefault();
    });
  }
})();
