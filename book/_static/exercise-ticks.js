// Ticks for exercises that are done: a box beside each statement and in the list of exercises. They are kept by the
// browser (localStorage), on this machine and nowhere else. Where it keeps nothing the boxes are left out.
(() => {
  const KEY = "rlhf-exercises-done";
  const read = () => new Set(JSON.parse(localStorage.getItem(KEY) ?? "[]"));
  const write = (done) => localStorage.setItem(KEY, JSON.stringify([...done].sort()));
  const usable = () => {
    try {
      write(read());
      return true;
    } catch {
      return false; // no storage here, or something else under this name
    }
  };

  const boxes = []; // [input, id]
  const box = (id, what) => {
    const input = Object.assign(document.createElement("input"), { type: "checkbox", checked: read().has(id) });
    input.setAttribute("aria-label", `${what} is done`);
    input.addEventListener("change", () => {
      const done = read();
      if (input.checked) done.add(id);
      else done.delete(id);
      write(done);
      show();
    });
    boxes.push([input, id]);
    return input;
  };

  const lists = []; // [place for words, ids]
  const show = () => {
    const done = read();
    for (const [input, id] of boxes) input.checked = done.has(id);
    for (const [place, ids] of lists) {
      place.textContent = ` (${ids.filter((id) => done.has(id)).length} of ${ids.length} done)`;
    }
  };

  const begin = () => {
    if (!usable()) return;
    for (const statement of document.querySelectorAll("p[id^='exercise-'], span[id^='exercise-']")) {
      const label = document.createElement("label");
      label.className = "exercise-done";
      const name = statement.querySelector("strong") ?? statement.nextElementSibling?.querySelector("strong");
      label.append(box(statement.id, name?.textContent ?? statement.id), " done");
      (statement.matches("p") ? statement : statement.nextElementSibling ?? statement).append(" ", label);
    }
    for (const table of document.querySelectorAll("table.exercises")) {
      const ids = [];
      for (const row of table.tBodies[0].rows) {
        const link = row.querySelector("a[href*='#exercise-']");
        if (!link) continue;
        const id = link.getAttribute("href").split("#")[1];
        (link.closest("p") ?? row.cells[0]).prepend(box(id, `Exercise ${link.textContent}`), " ");
        ids.push(id);
      }
      const head = table.closest(".pst-scrollable-table-container, .exercise-table")?.previousElementSibling;
      if (head) {
        const place = document.createElement("span");
        head.append(place);
        lists.push([place, ids]);
      }
    }
    show();
  };
  addEventListener("storage", (event) => { if (event.key === KEY) show(); }); // ticked in another tab
  if (document.readyState === "loading") addEventListener("DOMContentLoaded", begin);
  else begin();
})();
