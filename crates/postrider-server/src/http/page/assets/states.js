// What is shown while there is nothing to show: loading, empty, broken, away.
import { h } from './dom.js';

/** Grey bars where lines will be. */
export function skeleton(lines = 4) {
  return h('div.skeleton', { role: 'status', 'aria-label': 'Loading' },
    Array.from({ length: lines }, (_, place) => h(`div.bone.w${(place * 7) % 5}`)));
}

export function empty(title, text, ...actions) {
  return h('div.empty', {}, h('p.empty-title', {}, title), text && h('p', {}, text), actions.length ? h('p.actions', {}, actions) : null);
}

/** Cause and fix come from the server's problem document. */
export function broken(problem, again) {
  const title = problem.offline ? 'No connection' : `${problem.document?.title ?? 'Error'} (${problem.status ?? 'page'})`;
  return h('div.empty.broken', { role: 'alert' },
    h('p.empty-title', {}, title),
    h('p', {}, problem.message),
    again && h('p.actions', {}, h('button.button', { type: 'button', on: { click: again } }, 'Try again')));
}

/**
 * Fills `place` with what `load` answers: bones first, then `draw`, or what went wrong with a button
 * to try again. What is there already stays while it is loaded again.
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
