// The audit trail: who did what to which entry.
import { get } from './api.js';
import { h, replace } from './dom.js';
import { filterForm } from './filters.js';
import { empty, fill } from './states.js';
import { pagedList, table } from './table.js';
import { ago } from './time.js';
import { poll } from './poll.js';

const ACTIONS = ['dlq.retry', 'dlq.resolve', 'dlq.reopen', 'dlq.resend', 'dlq.import', 'job.create', 'job.stop', 'job.resume',
  'outbox.pause', 'outbox.resume', 'sink.pause', 'sink.resume', 'set_claim', 'release_key'];

export function audit({ outlet, query: first, signal }) {
  let asked = first;
  const filters = filterForm([
    { name: 'operator', label: 'Operator', type: 'search' },
    { name: 'action', label: 'Action', type: 'text', suggestions: true },
    { name: 'outbox', more: true, label: 'Outbox', type: 'text' },
    { name: 'target', more: true, label: 'Target', type: 'text' },
    { name: 'since', more: true, label: 'Since', type: 'time' },
    { name: 'until', more: true, label: 'Until', type: 'time' },
  ], 'Audit trail');
  filters.suggest('action', ACTIONS);
  const results = h('div');
  outlet.append(h('div.page-head', {}, h('h1', {}, 'Audit')),
    h('p.hint', {}, 'Each action is recorded under the name of the token that was used; a request cannot set that name.'), filters.form, results);
  let shown = null;
  const load = (before) => get('/audit', { ...asked, before }, signal);
  const show = () => {
    filters.show(asked);
    const mine = pagedList({
      signal, load,
      list: table({
        caption: 'Audit trail', key: (row) => row.id,
        columns: [
          { label: 'Time', cell: (row) => ago(row.at) },
          { label: 'Operator', cell: (row) => h('strong', {}, row.operator) },
          { label: 'Action', class: 'mono', cell: (row) => row.action },
          { label: 'Outbox', cell: (row) => row.outbox || '–' },
          { label: 'Target', cell: (row) => entry(row) },
          { label: 'Note or outcome', class: 'wide', cell: (row) => h('span.break', {}, row.detail || '–') },
        ],
      }),
      nothing: () => (Object.keys(asked).length ? empty('No matching actions', 'No action matches the filters.') : empty('No activity yet', 'Every action on dead letters, jobs, keys, outboxes and sinks is recorded here.')),
    });
    shown = mine;
    replace(results);
    fill(results, () => load(null), (found) => {
      mine.show(found);
      return mine.element;
    }, signal, 8);
  };
  poll(async () => shown?.element.isConnected && shown.look(), 5_000, signal);
  show();
  return { update(now) { asked = now; show(); } };
}

/** The target of an action; dead letters are linked. */
function entry(row) {
  if (row.action.startsWith('dlq.') && /^\d+$/.test(row.target)) {
    return h('a', { href: `/dead-letters/${encodeURIComponent(row.outbox)}/${row.target}` }, `dead letter ${row.target}`);
  }
  return h('span.mono.break', {}, row.target || '–');
}
