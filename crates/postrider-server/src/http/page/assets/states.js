// Placeholders: loading, empty, and failed.
import { h } from './dom.js';

/** Grey bars in place of lines that are loading. */
export function skeleton(lines = 4) {
  return h('div.skeleton', { role: 'status', 'aria-label': 'Loading' },
    Array.from({ length: lines }, (_, place) => h(`div.bone.w${(place * 7) % 5}`)));
}

export function empty(title, text, ...actions) {
  return h('div.empty', {}, h('p.empty-title', {}, title), text && h('p', {}, text), actions.length ? h('p.actions', {}, actions) : null);
}

/** An error. The cause and the fix come from the server's problem document. */
export function broken(problem, again) {
  const title = problem.offline ? 'No connection' : `${problem.document?.title ?? 'Error'} (${problem.status ?? 'dashboard'})`;
  return h('div.empty.broken', { role: 'alert' },
    h('p.empty-title', {}, title),
    h('p', {}, problem.message),
    again && h('p.actions', {}, h('button.button', { type: 'button', on: { click: again } }, 'Try again')));
}

/**
 * Fills `place` with what `load` returns: first a skeleton, then the result of `draw`, or the error with
 * a button to try again. Existing content stays while it is reloaded.
 */
export async function fill(place, load, draw, signal, bones = 4) {
  if (!place.firstChild) place.append(skeleton(bones));
  place.setAttribute('aria-busy', 'true');
  try {
    const loaded = await load();
    if (!signal.aborted) place.replaceChildren(...[draw(loaded)].flat(Infinity).filter(Boolean));
  } catch (problem) {
    if (signal.aborted || problem.name === 'AbortError') return;
    place.replaceChildren(broken(problem, () => {
      place.replaceChildren();
      fill(place, load, draw, signal, bones);
    }));
  } finally {
    place.removeAttribute('aria-busy');
  }
}
