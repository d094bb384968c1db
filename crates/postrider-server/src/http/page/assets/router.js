// Maps the address to a page. Addresses are real paths, so that links can be shared.

const pages = [];
let current = null;
let outlet = null;

/** Registers a page under a path such as `/events/:outbox/:id`. */
export function page(path, title, render) {
  const names = [];
  const pattern = path.replace(/:(\w+)/g, (_, name) => { names.push(name); return '([^/]+)'; });
  pages.push({ path, pattern: new RegExp(`^${pattern}$`), names, title, render });
}

/** Shows pages in `element` from now on; called after each sign-in. */
export function start(element) {
  outlet = element;
  show(false);
}

export function stop() {
  current?.ended.abort();
  current = null;
}

addEventListener('popstate', () => current && show(false));
document.addEventListener('click', (event) => current && follow(event));

function follow(event) {
  if (event.defaultPrevented || event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  const link = event.target.closest?.('a[href]');
  if (!link || link.target || link.hasAttribute('download') || link.origin !== location.origin) return;
  if (link.hash && link.pathname === location.pathname) return;
  if (!pages.some(({ pattern }) => pattern.test(link.pathname))) return;
  event.preventDefault();
  navigate(link.pathname + link.search + link.hash);
}

export function navigate(to, { replace = false } = {}) {
  if (replace) history.replaceState(null, '', to);
  else if (to !== location.pathname + location.search + location.hash) history.pushState(null, '', to);
  show(true);
}

/** Changes the query of the current page without leaving the page. */
export function setQuery(changes) {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === undefined || value === '') query.delete(name);
    else query.set(name, value);
  }
  const text = query.toString();
  history.pushState(null, '', location.pathname + (text ? `?${text}` : ''));
  show(false);
}

export const query = () => Object.fromEntries(new URLSearchParams(location.search));

export function currentPath() {
  return current?.page.path ?? null;
}

const listeners = new Set();

/** Calls the listener for each page that is shown, until the signal aborts. */
export function onMove(listener, signal) {
  listeners.add(listener);
  signal.addEventListener('abort', () => listeners.delete(listener));
}

/** Moves the focus to the heading of a new page, which announces it. A new query is not a new page. */
function show(announce) {
  const found = pages.find(({ pattern }) => pattern.test(location.pathname)) ?? pages[0];
  const matched = location.pathname.match(found.pattern) ?? [];
  const params = Object.fromEntries(found.names.map((name, place) => [name, decodeURIComponent(matched[place + 1])]));
  const same = current && current.page === found && current.where === location.pathname;
  if (same && current.view?.update) {
    current.view.update(query());
  } else {
    stop();
    const ended = new AbortController();
    current = { page: found, where: location.pathname, ended };
    document.title = `${found.title} · Postrider`;
    outlet.replaceChildren();
    current.view = found.render({ outlet, params, query: query(), signal: ended.signal }) ?? {};
    if (announce) {
      if (!location.hash) scrollTo(0, 0);
      const heading = outlet.querySelector('h1');
      heading?.setAttribute('tabindex', '-1');
      heading?.focus({ preventScroll: true });
    }
  }
  for (const listener of listeners) listener(found);
}

export function setTitle(title) {
  document.title = `${title} · Postrider`;
}
