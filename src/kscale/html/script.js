"use strict";
// Tables sort by a click on a heading, and the long ones filter; without this file they are as they are.
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0];
  const key = (row, column) => {
    const cell = row.cells[column];
    return "sort" in cell.dataset ? Number(cell.dataset.sort) : cell.textContent;
  };
  const compare = (a, b) => {
    if (typeof a === typeof b) return typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true });
    return typeof a === "number" ? -1 : 1;
  };
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = [...body.rows].sort((a, b) => compare(key(a, column), key(b, column)) * (down ? -1 : 1));
      body.append(...rows);
    });
  });
  if (body.rows.length > 10) {
    const filter = document.createElement("input");
    filter.type = "search";
    filter.placeholder = "Filter " + body.rows.length + " rows";
    filter.setAttribute("aria-label", filter.placeholder);
    filter.addEventListener("input", () => {
      const wanted = filter.value.toLowerCase();
      for (const row of body.rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
    });
    table.parentElement.before(filter);
  }
}
