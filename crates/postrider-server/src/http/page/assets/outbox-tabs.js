// Selects the outbox that a page shows. The choice is in the address.
import { h, keyed, setText } from './dom.js';
import { live, watch } from './live.js';
import { compact } from './format.js';
import { setQuery } from './router.js';

/** The outbox from the address, or the first one for which `prefer` returns the highest value. */
export function chosenOutbox(query, prefer = () => 0) {
  const all = live.snapshot?.outboxes ?? [];
  const named = all.find((o) => o.name === query.outbox);
  const best = all.reduce((most, o) => (!most || prefer(o) > prefer(most) ? o : most), null);
  return (named ?? best)?.name ?? null;
}

/** A tab with a figure for each outbox; hidden if there is only one. */
export function outboxTabs(chosen, figure, signal) {
  const element = h('div.tabs', { role: 'group', 'aria-label': 'Outbox' });
  const create = (outbox) => h('button.tab', { type: 'button', on: { click: () => setQuery({ outbox: outbox.name, fingerprint: null }) } },
    h('span', {}, outbox.name), h('span.tab-count'));
  const draw = () => {
    const all = live.snapshot?.outboxes ?? [];
    element.hidden = all.length < 2;
    keyed(element, all, (o) => o.name, create, (tab, outbox) => {
      tab.setAttribute('aria-pressed', String(outbox.name === chosen()));
      setText(tab.lastChild, compact(figure(outbox)));
    });
  };
  watch(draw, signal);
  return { element, draw };
}

/** Waits for the first snapshot, which names the outboxes. */
export function whenKnown(signal) {
  return new Promise((resolve) => {
    const first = new AbortController();
    signal.addEventListener('abort', () => first.abort());
    watch(({ snapshot }) => {
      if (!snapshot) return;
      first.abort();
      resolve();
    }, first.signal);
  });
}
