// Starts the dashboard: asks who is signed in, then shows the frame and the first page, or the sign-in.
import { get, remove, whenSignedOut } from './api.js';
import { h, replace } from './dom.js';
import { connect, disconnect } from './live.js';
import { notice } from './dialog.js';
import { page, start, stop } from './router.js';
import { session, setSession } from './session.js';
import { signInView } from './sign-in.js';
import { frame } from './frame.js';
import { broken } from './states.js';
import { overview } from './page-overview.js';
import { events } from './page-events.js';
import { eventStory } from './page-event.js';
import { deadLetters } from './page-dead-letters.js';
import { deadLetterStory } from './page-dead-letter.js';
import { outboxes } from './page-outboxes.js';
import { alerts } from './page-alerts.js';
import { audit } from './page-audit.js';

page('/', 'Overview', overview);
page('/events', 'Events', events);
page('/events/:outbox/:id', 'Event', eventStory);
page('/dead-letters', 'Dead letters', deadLetters);
page('/dead-letters/:outbox/:id', 'Dead letter', deadLetterStory);
page('/outboxes', 'Outboxes and sinks', outboxes);
page('/alerts', 'Alerts', alerts);
page('/audit', 'Audit', audit);

const app = document.getElementById('app');

async function boot() {
  try {
    setSession(await get('/whoami', {}, undefined, { quiet401: true }));
    enter();
  } catch (problem) {
    if (problem.status === 401) return showSignIn();
    document.title = 'Postrider';
    replace(app, h('main.boot', { id: 'main' }, h('h1.sr', {}, 'Postrider'), broken(problem, boot)));
  }
}

let framed = null;

function enter() {
  framed = new AbortController();
  const { element, outlet } = frame({ signOut, ended: framed });
  replace(app, element);
  connect();
  start(outlet);
}

function showSignIn(reason) {
  framed?.abort();
  stop();
  disconnect();
  document.title = 'Sign in · Postrider';
  replace(app, signInView(reason, async () => {
    setSession(await get('/whoami'));
    enter();
  }));
}

async function signOut() {
  try {
    await remove('/session');
    session.role = null;
    showSignIn();
  } catch (problem) {
    notice(problem.message, { tone: 'bad' });
  }
}

whenSignedOut(() => {
  if (session.role) {
    session.role = null;
    showSignIn('Your session has ended. Sign in again to continue where you left off.');
  }
});

boot();
