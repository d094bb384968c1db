// The frame around all pages: the navigation, who is signed in, and whether the data is live.
import { h, replace, s, setText } from './dom.js';
import { connect, live, watch } from './live.js';
import { get } from './api.js';
import { poll } from './poll.js';
import { compact, exact } from './format.js';
import { currentPath, onMove } from './router.js';
import { session } from './session.js';
import { clock } from './time.js';
import { shortcuts } from './shortcuts.js';

const PLACES = [
  ['/', 'Overview', 'M3 12l9-8 9 8v8h-6v-5H9v5H3z'],
  ['/events', 'Events', 'M3 5h18v14H3z M3 6l9 7 9-7'],
  ['/dead-letters', 'Dead letters', 'M3 5h18v14H3z M9 9.5l6 5 M15 9.5l-6 5'],
  ['/outboxes', 'Outboxes and sinks', 'M4 4h16v5H4z M4 15h16v5H4z M12 9v6 M9.5 12.5L12 15l2.5-2.5'],
  ['/alerts', 'Alerts', 'M12 4a5 5 0 0 1 5 5v4l2 3H5l2-3V9a5 5 0 0 1 5-5z M10 19h4'],
  ['/audit', 'Audit', 'M6 3h12v18H6z M9 8h6 M9 12h6 M9 16h4'],
];

export function brand() {
  return h('span.brand', {},
    s('svg', { class: 'mark', viewBox: '0 0 32 32', 'aria-hidden': 'true' },
      s('rect', { width: 32, height: 32, rx: 8, class: 'mark-ground' }),
      s('path', { d: 'M7 11h18v11H7z M7 11l9 7 9-7', class: 'mark-line' })),
    h('span', {}, 'Postrider'));
}

/** Aborting `ended` stops everything that the frame started. */
export function frame({ signOut, ended }) {
  const outlet = h('main', { id: 'main', tabindex: '-1' });
  const links = PLACES.map(([path, label, drawing]) => {
    const count = h('span.nav-count', { hidden: true });
    const link = h('a.nav-link', { href: path },
      s('svg', { class: 'nav-icon', viewBox: '0 0 24 24', 'aria-hidden': 'true' }, s('path', { d: drawing })),
      h('span', {}, label), count);
    return { path, link, count };
  });
  const state = h('span.live-text', {}, 'Connecting…');
  const lamp = h('span.lamp', { 'aria-hidden': 'true' });
  const banner = h('div.banner', { role: 'status', hidden: true });

  onMove(() => {
    const path = currentPath() ?? '/';
    for (const { path: to, link } of links) {
      const here = to === '/' ? path === '/' : path.startsWith(to);
      if (here) link.setAttribute('aria-current', 'page');
      else link.removeAttribute('aria-current');
    }
  }, ended.signal);
  const badge = (path, value, word) => {
    const { count } = links.find((entry) => entry.path === path);
    count.hidden = !value;
    if (count.title === exact(value)) return;
    count.title = exact(value);
    replace(count, compact(value), h('span.sr', {}, ` ${word}`));
  };
  watch(({ state: now, snapshot }) => {
    lamp.dataset.state = now;
    setText(state, now === 'live' ? `Live, ${clock(snapshot.at)}` : now === 'offline' ? 'Offline' : 'Connecting…');
    if (snapshot) badge('/dead-letters', snapshot.outboxes.reduce((sum, o) => sum + o.unresolved, 0), 'unresolved');
    away(banner);
  }, ended.signal);
  poll(async () => {
    const { active } = await get('/alerts', {}, ended.signal);
    badge('/alerts', active.length, 'active');
  }, 5_000, ended.signal);

  const element = h('div.frame', {},
    h('header.side', {},
      h('a.brand-link', { href: '/', 'aria-label': 'Postrider, overview' }, brand()),
      h('nav.nav', { 'aria-label': 'Pages' }, links.map(({ link }) => link)),
      h('div.side-foot', {},
        h('div.live', {}, lamp, state),
        h('div.who', {}, h('span.who-name', { title: `Signed in via ${session.way}` }, session.name), h('span.role', {}, session.role)),
        h('div.side-buttons', {},
          themeSwitch(),
          h('button.icon-button', { type: 'button', title: 'Keyboard shortcuts (?)', 'aria-label': 'Keyboard shortcuts', on: { click: shortcuts } }, '?'),
          session.way === 'session' && h('button.button.small', { type: 'button', on: { click: signOut } }, 'Sign out')),
        h('div.version', {}, `version ${session.version}`))),
    h('div.content', {}, banner, outlet));
  return { element, outlet };
}

/** Shows, while the connection is lost, how old the data is and that the dashboard is reconnecting. */
function away(banner) {
  const offline = live.state === 'offline';
  if (banner.hidden === !offline) return;
  banner.hidden = !offline;
  replace(banner, offline && [
    h('strong', {}, 'Connection lost.'), ' ',
    live.snapshot ? `Showing data from ${clock(live.snapshot.at)}; reconnecting… ` : 'No data yet; reconnecting… ',
    h('button.link', { type: 'button', on: { click: connect } }, 'Reconnect now'),
  ]);
}

/** Switches between system, light and dark. This browser remembers the choice. */
function themeSwitch() {
  const choices = ['system', 'light', 'dark'];
  const button = h('button.icon-button', { type: 'button' });
  const show = () => {
    const now = document.documentElement.dataset.theme ?? 'system';
    button.setAttribute('aria-label', `Colours: ${now}`);
    button.title = `Colours: ${now}. Click to change.`;
    replace(button, { system: '◐', light: '☀', dark: '☾' }[now]);
  };
  button.addEventListener('click', () => {
    const now = document.documentElement.dataset.theme ?? 'system';
    const next = choices[(choices.indexOf(now) + 1) % choices.length];
    if (next === 'system') {
      delete document.documentElement.dataset.theme;
      localStorage.removeItem('postrider-theme');
    } else {
      document.documentElement.dataset.theme = next;
      localStorage.setItem('postrider-theme', next);
    }
    show();
  });
  show();
  return button;
}
