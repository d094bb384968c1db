// Who is signed in, and what that allows. The server decides; the page only leaves out what it would
// refuse.

const RANK = { viewer: 0, operator: 1, admin: 2 };

export const session = { name: null, role: null, way: null, version: null };

export function setSession(whoami) {
  Object.assign(session, whoami);
}

/** Whether a button that needs this role is shown. */
export const may = (role) => RANK[session.role] >= RANK[role];
