// Who is signed in, and what that role allows. The server decides; the dashboard only hides what the
// server would refuse.

const RANK = { viewer: 0, operator: 1, admin: 2 };

export const session = { name: null, role: null, way: null, version: null };

export function setSession(whoami) {
  Object.assign(session, whoami);
}

/** Whether a button that needs this role is shown. */
export const may = (role) => RANK[session.role] >= RANK[role];
