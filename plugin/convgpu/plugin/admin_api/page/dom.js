// The little of the document that all parts need. Text is set as text, never as markup; what is as before is left alone.

export function element(tag, properties = {}) {
  return Object.assign(document.createElement(tag), properties);
}

export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function setHidden(node, hidden) {
  if (node.hidden !== hidden) node.hidden = hidden;
}

export function describe(list, rows) {
  const shown = rows.filter(([, text]) => text);
  const written = shown.flat().join("\n");
  if (list.dataset.written === written) return;
  list.dataset.written = written;
  list.replaceChildren(...shown.flatMap(([name, text]) => [element("dt", { textContent: name }), element("dd", { textContent: text })]));
}

// A table whose rows have keys: rows come, go and move, and only what differs is written. `columns` write one cell each.
// The arrow keys go from row to row, by the link in each, or by the row itself where there is none.
export class Table {
  constructor(table, columns) {
    this.body = table.tBodies[0];
    this.columns = columns;
    this.labels = Array.from(table.tHead.rows[0].cells, (cell) => [cell.textContent, cell.className]);
    this.rows = new Map();
    this.body.addEventListener("keydown", (event) => this.onKey(event));
    this.body.addEventListener("focusin", ({ target }) => this.choose(target.closest("tr")));
  }

  show(items, key) {
    const before = this.rows;
    this.rows = new Map();
    let place = this.body.firstElementChild;
    for (const item of items) {
      const name = key(item);
      const row = before.get(name) ?? this.make();
      before.delete(name);
      this.rows.set(name, row);
      if (row === place) place = place.nextElementSibling;
      else this.body.insertBefore(row, place);
      row.item = item;
      this.columns.forEach((write, index) => write(row.cells[index], item, row));
      const stop = row.querySelector("a") ?? row;
      if (stop.tabIndex === 0 && row !== this.chosen) stop.tabIndex = -1;
    }
    const away = [...before.values()].some((row) => row.contains(document.activeElement));
    for (const row of before.values()) row.remove();
    const [first] = this.rows.values();
    if (first && !this.chosen?.isConnected) this.choose(first);
    if (away && first) stopOf(first).focus();
  }

  make() {
    const row = element("tr", { tabIndex: -1 });
    for (const [label, className] of this.labels) {
      const cell = element("td", { className });
      cell.dataset.label = label;
      row.append(cell);
    }
    return row;
  }

  // One row of the table is in the order of the tab key; arrows choose which.
  choose(row) {
    if (this.chosen && this.chosen !== row) stopOf(this.chosen).tabIndex = -1;
    this.chosen = row;
    stopOf(row).tabIndex = 0;
  }

  onKey(event) {
    const row = event.target.closest("tr");
    const next = {
      ArrowDown: row.nextElementSibling,
      ArrowUp: row.previousElementSibling,
      Home: this.body.firstElementChild,
      End: this.body.lastElementChild,
    }[event.key];
    if (!next) return;
    event.preventDefault();
    stopOf(next).focus();
  }
}

function stopOf(row) {
  return row.querySelector("a") ?? row;
}
