// Looks again and again, while somebody is there to see it: a page that was left open must not keep
// its session alive.
import { Problem } from './api.js';

const IDLE_MS = 10 * 60_000;
let active = Date.now();
for (const kind of ['pointerdown', 'pointermove', 'keydown', 'scroll']) {
  addEventListener(kind, () => { active = Date.now(); }, { passive: true, capture: true });
}

/** Runs `look` now and every so often, one at a time, until the signal ends it. */
export function poll(look, everyMs, signal) {
  let timer;
  let running = false;
  const turn = async () => {
    clearTimeout(timer);
    if (running) return;
    running = true;
    const watched = !document.hidden && Date.now() - active < IDLE_MS;
    try {
      if (watched) await look();
    } catch (error) {
      // The page says that the server is away; what was cut off is no error.
      if (!(error instanceof Problem) && error.name !== 'AbortError') throw error;
    } finally {
      running = false;
      if (!signal.aborted) timer = setTimeout(turn, everyMs);
    }
  };
  signal.addEventListener('abort', () => clearTimeout(timer));
  turn();
  return turn;
}
