// Dead letters grouped by error, and the actions on them.
import { get, href, outboxPath, post } from './api.js';
import { h, keyed, replace, setText } from './dom.js';
import { hourBars } from './chart.js';
import { watch } from './live.js';
import { bulkDialog, jobsPanel } from './bulk.js';
import { act, notice } from './dialog.js';
import { brief, compact, count, exact, plural } from './format.js';
import { filterForm } from './filters.js';
import { actOnPicked } from './letter-actions.js';
import { chosenOutbox, outboxTabs, whenKnown } from './outbox-tabs.js';
import { panel } from './panels.js';
import { poll } from './poll.js';
import { setQuery } from './router.js';
import { may } from './session.js';
import { badge, reasonBadge, reasonText } from './signs.js';
import { empty, fill, skeleton } from './states.js';
import { pagedList, table } from './table.js';
import { ago } from './time.js';

const FILTER = ['fingerprint', 'event_type', 'error', 'reason', 'event_id', 'aggregate_type', 'aggregate_id', 'since', 'until'];
const REASONS = ['exhausted', 'rejected', 'integrity', 'no_route', 'expired', 'crash'];

export function deadLetters({ outlet, query: first, signal }) {
  let asked = first;
  let picked = new Set();
  const outbox = () => chosenOutbox(asked, (o) => o.unresolved);
  const filter = () => Object.fromEntries(FILTER.map((name) => [name, asked[name]]).filter(([, value]) => value));
  const selection = () => ({ ...filter(), ...(asked.resolved === 'all' ? {} : { resolved: asked.resolved ?? 'false' }) });

  const filters = filterForm([
    { name: 'error', label: 'Error contains', type: 'search' },
    { name: 'event_type', label: 'Type', type: 'text', suggestions: true },
    { name: 'reason', label: 'Reason', type: 'select', options: [['', 'Any'], ...REASONS.map((r) => [r, reasonText(r)])] },
    { name: 'aggregate_id', more: true, label: 'Aggregate ID', type: 'text' },
    { name: 'event_id', more: true, label: 'Event ID', type: 'text' },
    { name: 'resolved', label: 'Show', type: 'select', options: [['', 'Unresolved'], ['true', 'Resolved'], ['all', 'All']] },
    { name: 'since', more: true, label: 'Failed since', type: 'time' },
    { name: 'until', more: true, label: 'Failed until', type: 'time' },
  ], 'Dead letters');
  const tabs = outboxTabs(outbox, (o) => o.unresolved, signal);
  const groups = h('div.groups');
  const bar = h('div.bulk-bar', { role: 'group', 'aria-label': 'Bulk actions' });
  const results = h('div');
  const jobs = jobsPanel(outbox, signal, () => refresh());
  const keys = h('div');
  outlet.append(
    h('div.page-head', {}, h('h1', {}, 'Dead letters')), tabs.element,
    h('section', { 'aria-label': 'Grouped by error' }, groups),
    jobs.element, filters.form, bar, results, keys);

  let shown = null;
  const toggle = (id, on) => {
    if (on) picked.add(id); else picked.delete(id);
    drawBar();
  };
  const drawBar = () => replace(bar, barOf({ outbox: outbox(), picked: [...picked], filter: filter(), selection: selection(), resolved: asked.resolved, refresh, watchJob: jobs.look, pickAll }));
  const pickAll = () => {
    const all = shown.rows.filter((row) => !row.resolved).map((row) => row.id);
    picked = picked.size ? new Set() : new Set(all);
    for (const box of results.querySelectorAll('input[data-pick]')) box.checked = picked.has(Number(box.dataset.pick));
    drawBar();
  };
  const list = () => pagedList({
    signal,
    list: table({
      caption: 'Dead letters', key: (row) => row.id,
      columns: [
        ...(may('operator') ? [{ label: h('span.sr', {}, 'Select'), class: 'pick', cell: (row) => !row.resolved && h('input', { type: 'checkbox', 'aria-label': `Select dead letter ${row.id}`, checked: picked.has(row.id), data: { pick: row.id }, on: { change: (event) => toggle(row.id, event.target.checked) } }) }] : []),
        { label: 'ID', class: 'id', cell: (row) => h('a', { href: `/dead-letters/${encodeURIComponent(outbox())}/${row.id}` }, `#${row.id}`) },
        { label: 'Reason', cell: (row) => (row.resolved ? badge('good', 'check', row.retried_as ? 'Sent again' : 'Resolved', `by ${row.resolved_by}`) : reasonBadge(row.reason)) },
        { label: 'Type', cell: (row) => row.event_type },
        { label: 'Aggregate', class: 'mono', cell: (row) => `${row.aggregate_type}/${row.aggregate_id}` },
        { label: 'Error', class: 'wide', cell: (row) => h('span.cut', { title: row.error_message }, brief(row.error_message, 110)) },
        { label: 'Attempts', class: 'right', cell: (row) => String(row.retry_count) },
        { label: 'Failed at', cell: (row) => ago(row.failed_at) },
      ],
    }),
    load: (before) => get(outboxPath(outbox(), 'dead-letters'), { ...selection(), before }, signal),
    nothing: () => nothing(asked, filter()),
    watchNew: () => loadGroups(),
  });
  const loadGroups = () => fill(groups, () => get(outboxPath(outbox(), 'dead-letters', 'groups'), { resolved: 'false', limit: 12 }, signal),
    (found) => drawGroups(found, outbox(), asked.fingerprint, refresh), signal, 3);
  const show = async () => {
    if (!results.firstChild) replace(results, skeleton(6));
    await whenKnown(signal);
    if (!outbox()) return;
    picked = new Set();
    filters.show(asked);
    tabs.draw();
    const mine = list();
    shown = mine;
    replace(results);
    drawBar();
    loadGroups();
    replace(keys, blockedKeys(outbox(), signal));
    await fill(results, () => get(outboxPath(outbox(), 'dead-letters'), selection(), signal), (found) => {
      mine.show(found);
      return mine.element;
    }, signal, 6);
  };
  /** Reloads the same view after an action. */
  const refresh = async () => {
    picked = new Set();
    drawBar();
    loadGroups();
    const found = await get(outboxPath(outbox(), 'dead-letters'), selection(), signal);
    shown.show(found);
  };
  watch(({ snapshot }, reconnected) => {
    filters.suggest('event_type', snapshot?.outboxes.find((o) => o.name === outbox())?.by_type.filter((t) => t.dead).map((t) => t.event_type) ?? []);
    if (reconnected) show();
  }, signal);
  poll(async () => shown?.element.isConnected && shown.look(), 5_000, signal);
  show();
  return { update(now) { asked = now; show(); } };
}

function nothing(asked, filter) {
  if (Object.keys(filter).length || asked.resolved) return empty('No matching dead letters', 'No dead letter matches the filters.');
  return empty('No dead letters', 'Events that cannot be delivered end up here, with their error and their full content.');
}

/** A card for each group of errors, the newest first. */
function drawGroups(found, outbox, chosen, refresh) {
  if (!found.groups.length) return [];
  const element = h('div.group-list');
  keyed(element, found.groups, (g) => g.fingerprint, (group) => groupCard(group, outbox, group.fingerprint === chosen, refresh));
  return [
    h('div.section-head', {}, h('h2', {}, 'Grouped by error'), !found.complete && h('span.hint', {}, 'Counting reached its time limit; the counts are lower bounds.')),
    element,
  ];
}

function groupCard(group, outbox, chosen, refresh) {
  const types = group.event_types.map((t) => `${t.event_type} ${compact(t.count)}`).join(', ');
  const filter = { fingerprint: group.fingerprint };
  const bulk = (kind) => async () => (await bulkDialog(kind, outbox, filter, group.sample)) && refresh();
  return h('article.card.group', { 'aria-label': `${exact(group.count.count)} dead letters: ${brief(group.sample, 60)}`, data: { chosen: String(chosen) } },
    h('div.card-head', {}, h('span.group-count', {}, count(group.count)), reasonBadge(group.reason),
      h('span.grow'), hourBars(group.by_hour, `Dead letters per hour; ${group.by_hour.at(-1)?.count ?? 0} in the latest hour`)),
    h('p.group-error', { title: group.sample }, brief(group.sample, 200)),
    h('p.hint', {}, types, '; ', ago(group.first_failed_at), ' to ', ago(group.last_failed_at)),
    h('div.card-actions', {},
      h('button.button.small', { type: 'button', 'aria-pressed': String(chosen), on: { click: () => setQuery({ fingerprint: chosen ? null : group.fingerprint, resolved: null }) } }, chosen ? 'Show all' : 'Show only these'),
      may('operator') && [
        h('button.button.small.primary', { type: 'button', on: { click: bulk('dlq_retry') } }, 'Retry all…'),
        h('button.button.small', { type: 'button', on: { click: bulk('dlq_resolve') } }, 'Resolve all…'),
      ],
      h('a.button.small', { href: href(outboxPath(outbox, 'dead-letters', 'export'), { ...filter, resolved: 'false' }), download: '' }, 'Export')));
}

/** Buttons that act on the selected dead letters or on all that match the filters; the labels say which. */
function barOf({ outbox, picked, filter, selection, resolved, refresh, watchJob, pickAll }) {
  const exporting = h('a.button.small', { href: href(outboxPath(outbox, 'dead-letters', 'export'), selection), download: '' }, 'Export all matching');
  if (!may('operator') || resolved === 'true') return [exporting];
  const bulk = (kind) => async () => {
    if (await bulkDialog(kind, outbox, filter)) {
      watchJob();
      refresh();
    }
  };
  return [
    h('button.button.small', { type: 'button', on: { click: pickAll } }, picked.length ? 'Clear selection' : 'Select page'),
    h('span.dim', { role: 'status' }, picked.length ? `${picked.length} selected` : ''),
    picked.length > 0 && [
      h('button.button.small.primary', { type: 'button', on: { click: () => actOnPicked('retry', outbox, picked, refresh) } }, 'Retry selected'),
      h('button.button.small', { type: 'button', on: { click: () => actOnPicked('resolve', outbox, picked, refresh) } }, 'Resolve selected'),
    ],
    h('span.grow'),
    h('button.button.small', { type: 'button', on: { click: bulk('dlq_retry') } }, 'Retry all matching…'),
    h('button.button.small', { type: 'button', on: { click: bulk('dlq_resolve') } }, 'Resolve all matching…'),
    exporting,
  ];
}

/** Parked and blocked keys, and how many events wait behind them. */
export function blockedKeys(outbox, signal) {
  const path = outboxPath(outbox, 'blocked-keys');
  return panel('Parked and blocked keys', {
    signal, wide: true, load: () => get(path, {}, signal),
    draw: (keys, again) => {
      if (!keys.length) return empty('No parked or blocked keys', 'In claim mode lanes, an event that fails can hold back the later events of its key. Such keys are listed here.');
      const waiting = keys.reduce((sum, key) => sum + key.waiting, 0);
      const list = table({
        caption: 'Keys with waiting events', key: (key) => `${key.aggregate_type}/${key.aggregate_id}`,
        columns: [
          { label: 'Key', class: 'mono', cell: (key) => `${key.aggregate_type}/${key.aggregate_id}` },
          { label: 'State', cell: (key) => (key.parked ? badge('bad', 'pause', 'Parked', 'Waits until an operator releases it') : badge('warn', 'half', 'Blocked', 'Continues when its first event has been dealt with')) },
          { label: 'First event', cell: (key) => (key.head_id ? h('a', { href: `/events/${encodeURIComponent(outbox)}/${key.head_id}` }, `#${key.head_id}`) : '–') },
          { label: 'Waiting behind', class: 'right', cell: (key) => count({ count: key.waiting, at_least: key.at_least }) },
          { label: 'Next attempt', cell: (key) => (key.parked ? '–' : ago(key.next_retry_at, 'due now')) },
          { label: 'Error', class: 'wide', cell: (key) => h('span.cut', { title: key.last_error }, brief(key.last_error, 90)) },
          ...(may('operator') ? [{ label: h('span.sr', {}, 'Action'), cell: (key) => key.parked && act(h('button.button.small', { type: 'button' }, 'Release'), async () => {
            await post(outboxPath(outbox, 'blocked-keys', 'release'), { aggregate_type: key.aggregate_type, aggregate_id: key.aggregate_id });
            notice(`${key.aggregate_type}/${key.aggregate_id} released.`);
            again();
          }) }] : []),
        ],
      });
      list.rows(keys);
      const words = h('p', {});
      setText(words, `${keys.length === 100 ? '100+' : keys.length} ${keys.length === 1 ? 'key' : 'keys'}, ${plural(waiting, 'event')} waiting behind ${keys.length === 1 ? 'it' : 'them'}.`);
      return [words, list.element];
    },
  });
}
