// Tables whose rows change in place, so that nothing moves while it is clicked.
import { h, keyed, replace } from './dom.js';

/**
 * `columns` are { label, cell(row), class?, wide? }. A row is redrawn only if its data
 * has changed.
 */
export function table({ caption, columns, key, rowClass }) {
  const body = h('tbody');
  const element = h('div.table-wrap', { role: 'region', 'aria-label': caption, tabindex: 0 },
    h('table', {}, h('caption.sr', {}, caption),
      h('thead', {}, h('tr', {}, columns.map((c) => h(`th${c.class ? `.${c.class}` : ''}`, { scope: 'col' }, c.label)))),
      body));
  const drawn = new WeakMap();
  const update = (line, row) => {
    const text = JSON.stringify(row);
    if (drawn.get(line) === text) return;
    drawn.set(line, text);
    if (rowClass) line.className = rowClass(row);
    columns.forEach((column, place) => {
      const cell = line.children[place];
      const focused = cell.contains(document.activeElement);
      if (!focused) replace(cell, column.cell(row));
    });
  };
  const create = () => h('tr', {}, columns.map((c) => h(`td${c.class ? `.${c.class}` : ''}`, { data: { label: typeof c.label === 'string' ? c.label : '' } })));
  return {
    element,
    rows: (rows) => keyed(body, rows, key, create, update),
    /** Strikes out rows that are no longer in the list, and leaves them in place. */
    strike(ids) {
      for (const id of ids) {
        const line = body.querySelector(`tr[data-key="${CSS.escape(String(id))}"]`);
        line?.classList.add('gone');
        if (line) line.title = 'No longer in this list: its state has changed since the list was loaded';
      }
    },
    /** Updates the rows that are shown, and adds none. */
    refresh(rows) {
      for (const row of rows) {
        const line = body.querySelector(`tr[data-key="${CSS.escape(String(key(row)))}"]`);
        if (line) update(line, row);
      }
    },
  };
}

/** A list of names and values. */
export function facts(pairs) {
  return h('dl.facts', {}, pairs.filter(Boolean).map(([name, value]) => h('div', {}, h('dt', {}, name), h('dd', {}, value))));
}

/**
 * A list that is loaded page by page, with buttons for more rows, for continuing a search, and for new
 * rows. `load(before)` returns { rows, next, complete }.
 */
export function pagedList({ list, load, nothing, signal, watchNew }) {
  let rows = [];
  let next = null;
  let latest = null;
  const fresh = h('div.fresh', { role: 'status' });
  const foot = h('div.list-foot');
  const place = h('div.list');
  const draw = (complete) => {
    replace(fresh);
    if (!rows.length && (complete || next === null)) {
      replace(place, nothing());
      replace(foot);
      return;
    }
    list.rows(rows);
    if (!list.element.isConnected) replace(place, list.element);
    const label = complete ? 'Show more' : 'Continue search';
    const text = complete ? `${rows.length} shown` : `${rows.length} found so far; the search reached its time limit`;
    replace(foot, h('span.dim', {}, text),
      next !== null && h('button.button', { type: 'button', on: { click: (event) => more(event.currentTarget) } }, label));
  };
  async function more(button) {
    button.setAttribute('aria-busy', 'true');
    button.disabled = true;
    try {
      const found = await load(next);
      rows = rows.concat(found.rows);
      next = found.next ?? null;
      draw(found.complete ?? true);
    } catch (problem) {
      button.disabled = false;
      button.removeAttribute('aria-busy');
      replace(foot, h('span.dialog-error', { role: 'alert' }, problem.message), button);
    }
  }
  const element = h('div', {}, fresh, place, foot);
  return {
    element,
    place,
    get rows() { return rows; },
    show(found) {
      rows = found.rows;
      next = found.next ?? null;
      draw(found.complete ?? true);
    },
    /** Updates known rows in place. New ones are announced, and shown when the user asks for them. */
    async look() {
      const found = await load(null);
      if (signal.aborted) return;
      const top = rows[0]?.id ?? 0;
      const newer = found.rows.filter((row) => row.id > top).length;
      list.refresh(found.rows);
      const there = new Set(found.rows.map((row) => row.id));
      const last = found.next ? found.rows.at(-1)?.id ?? 0 : 0;
      const gone = found.complete === false ? [] : rows.filter((row) => row.id >= last && !there.has(row.id)).map((row) => row.id);
      list.strike(gone);
      if (!newer && !gone.length) return void replace(fresh);
      const text = newer ? `${newer}${newer === found.rows.length ? '+' : ''} new` : `${gone.length} no longer listed`;
      latest = found;
      if (fresh.textContent === text) return;
      replace(fresh, h('button.button.small', { type: 'button', on: { click: () => { watchNew?.(); this.show(latest); } } }, text));
    },
  };
}
