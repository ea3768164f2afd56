"use strict";
// The what-if slider. Every text was made together with the page; the script only chooses among them.
(function () {
  const block = document.getElementById("what-if-data");
  if (!block) return;
  const data = JSON.parse(block.textContent);
  const find = (name) => document.getElementById("what-if-" + name);
  const slider = find("slider");
  const rows = find("columns").rows;
  const cursor = document.querySelector("#what-if .cursor");

  function show(index) {
    const position = data.positions[index];
    find("factor").textContent = position.factor;
    find("epsilon").textContent = position.epsilon;
    find("accuracy").textContent = position.accuracy;
    find("said").textContent = position.said;
    find("live").classList.toggle("away", !position.here);
    find("reset").disabled = position.here;
    position.columns.forEach(function (texts, k) {
      rows[k].cells[1].textContent = texts[0];
      rows[k].cells[2].textContent = texts[1];
    });
    if (cursor && position.x !== undefined) {
      cursor.setAttribute("x1", position.x);
      cursor.setAttribute("x2", position.x);
    }
    slider.value = String(index);
    slider.setAttribute("aria-valuetext", position.factor + (position.here ? ", this release" : ""));
  }

  // "#what-if=3" is the fourth position, so that a position can be shared.
  function fromAddress() {
    const match = /^#what-if=(\d+)$/.exec(window.location.hash);
    if (!match) return false;
    show(Math.min(Number(match[1]), data.positions.length - 1));
    document.getElementById("what-if").scrollIntoView();
    return true;
  }

  function choose(index) {
    show(index);
    try {
      window.history.replaceState(null, "", "#what-if=" + index);
    } catch (refused) {
      // A page inside another one may not change its address; the slider works without.
    }
  }

  slider.addEventListener("input", () => choose(Number(slider.value)));
  find("reset").addEventListener("click", () => choose(data.chosen));
  window.addEventListener("hashchange", fromAddress);
  find("live").hidden = false;
  find("static").classList.add("on-paper");
  if (!fromAddress()) show(data.chosen);
})();
