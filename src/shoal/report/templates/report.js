"use strict";
// Table sorting, search, and highlighting of the hovered cluster on the map. All content is visible without this script.
for (const table of document.querySelectorAll("table.sortable")) {
  table.classList.add("live");
  const body = table.tBodies[0];
  const rows = Array.from(body.rows);
  const heads = Array.from(table.tHead.rows[0].cells);
  const value = (row, column, kind) => {
    const cell = row.cells[column];
    if (kind === "text") return cell.textContent.trim().toLowerCase();
    const number = parseFloat(cell.dataset.value);
    return cell.dataset.value === "inf" ? Infinity : number;
  };
  const sort = (column, kind, sign) => {
    const order = (a, b) => {
      const x = value(a, column, kind), y = value(b, column, kind);
      if (x !== x || y !== y) return (x !== x) - (y !== y); // NaN comes last
      return x < y ? -sign : x > y ? sign : 0;
    };
    body.append(...rows.slice().sort(order));
    heads.forEach((head, i) => {
      if (i === column) head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
      else head.removeAttribute("aria-sort");
    });
  };
  heads.forEach((head, column) => {
    const kind = head.dataset.sort;
    if (!kind) return;
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => sort(column, kind, head.getAttribute("aria-sort") === "ascending" ? -1 : 1));
  });

  const search = table.parentElement.querySelector(".search");
  if (search) {
    search.hidden = false;
    const input = search.querySelector("input"), counter = search.querySelector("output");
    const texts = rows.map((row) => row.textContent.toLowerCase());
    const ids = rows.map((row) => Array.from(row.querySelectorAll(".id"), (id) => id.textContent.trim()));
    const matches = (row, i, wanted) => {
      const number = /^(cluster\s+)?(\d+)$/.exec(wanted);
      if (!number || !row.dataset.cluster) return texts[i].includes(wanted);
      return row.dataset.cluster === number[2] || (!number[1] && ids[i].includes(number[2])); // numbers match as a whole: 7 does not match 17
    };
    input.addEventListener("input", () => {
      const wanted = input.value.trim().toLowerCase();
      let found = 0;
      rows.forEach((row, i) => {
        row.hidden = !matches(row, i, wanted);
        found += !row.hidden;
      });
      counter.textContent = wanted ? `${found} of ${rows.length}` : "";
    });
  }
}

const map = document.querySelector("figure.map svg");
if (map) {
  const show = (event) => {
    const row = event.target.closest("tr[data-cluster], path[data-cluster]");
    for (const path of map.querySelectorAll("path[data-cluster]")) {
      path.classList.toggle("on", row !== null && path.dataset.cluster === row.dataset.cluster);
    }
    map.classList.toggle("dim", row !== null);
  };
  document.addEventListener("mouseover", show);
}
