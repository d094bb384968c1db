// What is wrong, at a glance: one sentence, a line for each outbox, charts and panels.
import { h, keyed, replace, setText } from './dom.js';
import { watch, live } from './live.js';
import { compact, exact, plural, rate, seconds, milliseconds } from './format.js';
import { sparkline } from './chart.js';
import { charts } from './history-charts.js';
import { alertsPanel, ledgerPanel, breakersPanel, relaysPanel } from './panels.js';
import { badge, outboxBadge } from './signs.js';
import { skeleton } from './states.js';

export function overview({ outlet, signal, query }) {
  const verdict = h('p.verdict', { role: 'status' });
  const lines = h('div.lines', {}, skeleton(3));
  const plots = charts(query, signal);
  outlet.append(
    h('div.page-head', {}, h('h1', {}, 'Overview'), verdict),
    h('section', { 'aria-label': 'Outboxes' }, lines),
    plots.element,
    h('div.panels', {}, alertsPanel(signal), breakersPanel(signal), relaysPanel(signal), ledgerPanel(signal)));

  let alerts = [];
  const judge = () => live.snapshot && sentence(verdict, live.snapshot.outboxes, alerts);
  watch(({ snapshot }) => {
    if (!snapshot) return;
    if (lines.querySelector('.skeleton')) replace(lines);
    keyed(lines, snapshot.outboxes, (o) => o.name, lineOfLife, (element, outbox) => element.show(outbox));
    judge();
  }, signal);
  document.addEventListener('postrider-alerts', (event) => { alerts = event.detail; judge(); }, { signal });
  return { update: (next) => plots.choose(next) };
}

/** The whole state in one sentence, worst first, with links to the details. */
function sentence(element, outboxes, alerts) {
  const down = outboxes.flatMap((o) => o.down.map((d) => d.destination));
  const unresolved = outboxes.reduce((sum, o) => sum + o.unresolved, 0);
  const paused = outboxes.filter((o) => o.paused);
  const moving = outboxes.some((o) => o.traffic.delivered_in_minute);
  const waiting = outboxes.some((o) => o.pending);
  const critical = alerts.filter((alert) => alert.severity === 'critical').length;
  const warnings = alerts.filter((alert) => alert.severity === 'warning').length;
  const parts = [];
  if (down.length) parts.push(['bad', 'cross', `${plural(new Set(down).size, 'destination')} down`, '/outboxes']);
  if (critical) parts.push(['bad', 'octagon', plural(critical, 'critical alert'), '/alerts']);
  if (warnings) parts.push(['warn', 'warn', plural(warnings, 'warning'), '/alerts']);
  if (unresolved) parts.push(['warn', 'warn', plural(unresolved, 'unresolved dead letter'), '/dead-letters']);
  if (paused.length) parts.push(['warn', 'pause', `${plural(paused.length, 'outbox', 'outboxes')} paused`, '/outboxes']);
  const key = JSON.stringify([parts, parts.length ? 0 : [moving, waiting]]);
  if (element.dataset.shown === key) return;
  element.dataset.shown = key;
  if (!parts.length) {
    replace(element, badge('good', 'check', moving ? 'Healthy: events are being delivered' : waiting ? 'Healthy: some events are waiting' : 'Healthy: no events are waiting'));
    return;
  }
  replace(element, parts.map(([tone, form, text, href]) => h('a.verdict-part', { href }, badge(tone, form, text))));
}

/** One outbox on one line: pending, in flight, delivered, failed and dead events. */
function lineOfLife(outbox) {
  const name = h('a.line-name', { href: `/outboxes#${outbox.name}` }, outbox.name);
  const state = h('span.line-state');
  const way = h('span.line-way');
  const figure = (label, title, href) => {
    const value = h(href ? 'a.figure-value.num' : 'span.figure-value.num', href ? { href } : {});
    return { element: h('div.figure', { title }, h('span.figure-label', {}, label), value), value };
  };
  const scope = `?outbox=${encodeURIComponent(outbox.name)}`;
  const figures = {
    pending: figure('pending', 'Appended but neither delivered nor dead, according to the ledger', `/events${scope}`),
    flight: figure('in flight', 'Sent but not yet answered, over all relays'),
    delivered: figure('delivered/s', 'Since the previous refresh'),
    failed: figure('failed/s', 'Failed attempts in the last minute, over all relays'),
    oldest: figure('oldest', 'Age of the oldest waiting event'),
    latency: figure('p99', '99th percentile of the time from insert to delivery in the last minute, over all relays'),
    dead: figure('dead letters', 'Unresolved dead letters', `/dead-letters${scope}`),
  };
  const spark = h('div.line-spark');
  const element = h('article.line', { 'aria-label': `Outbox ${outbox.name}` },
    h('div.line-head', {}, name, state, way),
    h('div.figures', {}, Object.values(figures).map((f) => f.element)), spark);
  const put = (part, text, title, tone) => {
    setText(part.value, text);
    part.value.title = title ?? '';
    part.element.dataset.tone = tone ?? '';
  };
  let shown = '';
  element.show = (now) => {
    const word = outboxBadge(now);
    if (shown !== word.textContent + word.title) {
      shown = word.textContent + word.title;
      replace(state, word);
    }
    setText(way, `→ ${now.branches.length ? now.branches.join(', ') : now.sink}`);
    put(figures.pending, compact(now.pending), exact(now.pending));
    put(figures.flight, compact(now.traffic.in_flight), exact(now.traffic.in_flight));
    put(figures.delivered, rate(now.rates?.delivered_per_s), `appended ${rate(now.rates?.appended_per_s)}/s`);
    put(figures.failed, rate(now.traffic.failed_per_s), '', now.traffic.failed_per_s > 0 && 'warn');
    put(figures.oldest, now.oldest_age_s === null ? '–' : seconds(now.oldest_age_s), '');
    put(figures.latency, milliseconds(now.traffic.latency_p99_ms), `p50 ${milliseconds(now.traffic.latency_p50_ms)}; ${plural(now.traffic.delivered_in_minute, 'event')} in the last minute`);
    put(figures.dead, compact(now.unresolved), `${exact(now.dead)} in total`, now.unresolved && 'bad');
    const values = live.points.slice(-90).map((point) => point.outboxes.find((o) => o.name === now.name)?.pending ?? 0);
    replace(spark, sparkline(values, `Pending events in the last few minutes: now ${exact(now.pending)}, highest ${exact(Math.max(...values))}`));
  };
  return element;
}
