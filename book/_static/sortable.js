// Tables in a box of the class "sortable": each column's head becomes a button that sorts by the column, and turns the
// order when it is pressed again. What is better when it is higher begins with the highest. A cell's number is the first one
// in it. Lines whose name is no code, as the control's, stay at the foot. Without this script it is a table.
(() => {
  const numberIn = (cell) => {
    const found = cell.textContent.replaceAll("\u2212", "-").replaceAll(",", "").match(/-?\d*\.?\d+(e-?\d+)?/);
    return found ? Number(found[0]) : NaN;
  };

  const sort = (table, column, turned) => {
    const body = table.tBodies[0], lines = [...body.rows];
    const key = (line) => (column === 0 ? NaN : numberIn(line.cells[column]));
    const order = (a, b) => {
      const [x, y] = [key(a), key(b)];
      if (Number.isNaN(x) || Number.isNaN(y)) return a.cells[column].textContent.localeCompare(b.cells[column].textContent);
      return x - y;
    };
    const foot = lines.filter((line) => !line.cells[0].querySelector("code")), rest = lines.filter((line) => !foot.includes(line));
    rest.sort((a, b) => (turned ? -1 : 1) * order(a, b));
    body.append(...rest, ...foot);
  };

  const begin = () => {
    for (const table of document.querySelectorAll(".sortable table")) {
      const heads = [...table.tHead.rows[0].cells];
      heads.forEach((head, column) => {
        const button = Object.assign(document.createElement("button"), { type: "button" });
        button.append(...head.childNodes);
        head.append(button);
        button.addEventListener("click", () => {
          const now = head.getAttribute("aria-sort");
          const turned = now ? now === "ascending" : /accuracy|score|area|reward/.test(head.textContent);
          sort(table, column, turned);
          for (const other of heads) other.removeAttribute("aria-sort");
          head.setAttribute("aria-sort", turned ? "descending" : "ascending");
        });
      });
    }
  };
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", begin);
  else begin();
})();
