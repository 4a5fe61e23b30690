// The heat maps of the page that compares the rows: a pressed cell says its sentence, arrow keys walk from cell to cell.
(() => {
  const STEPS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
  const begin = (box) => {
    const body = box.querySelector("tbody");
    const said = box.querySelector(".said");
    const choose = (cell) => {
      for (const other of body.querySelectorAll("[tabindex='0']")) other.tabIndex = -1;
      body.querySelector("[aria-selected]")?.removeAttribute("aria-selected");
      cell.tabIndex = 0;
      cell.setAttribute("aria-selected", "true");
      said.textContent = cell.title;
    };
    const first = body.querySelector("td[tabindex]");
    if (!first) return;
    first.tabIndex = 0;
    body.addEventListener("click", (event) => {
      const cell = event.target.closest("td[tabindex]");
      if (!cell) return;
      choose(cell);
      cell.focus();
    });
    body.addEventListener("keydown", (event) => {
      const cell = event.target.closest("td[tabindex]");
      const step = STEPS[event.key];
      if (!cell || !(step || event.key === "Enter" || event.key === " ")) return;
      event.preventDefault();
      let [row, column] = [cell.parentElement.rowIndex - 1, cell.cellIndex];
      let next = cell;
      if (step) {
        do {
          row += step[0];
          column += step[1];
          next = body.rows[row]?.cells[column];
        } while (next && !next.hasAttribute("tabindex")); // over the diagonal
      }
      if (!next || next.tagName !== "TD") return;
      choose(next);
      next.focus();
    });
  };
  const all = () => document.querySelectorAll(".pair-matrix").forEach(begin);
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", all);
  else all();
})();
