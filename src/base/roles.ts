/** The roles of an app's members, and what each of them may do. */

/** The highest first. */
export const ROLES = ['owner', 'maintainer', 'viewer'] as const;
export type Role = (typeof ROLES)[number];

/** The roles that an owner gives to others. */
export const GIVEN_ROLES = ['maintainer', 'viewer'] as const;
export type GivenRole = (typeof GIVEN_ROLES)[number];

/** What somebody is invited to do with an app, in mails and on pages. */
export const INVITED_TO: Readonly<Record<Role, string>> = {
  owner: 'own',
  maintainer: 'maintain',
  viewer: 'view',
};

/**
 * `read`: sees charts, events and lists, and no token. `change`: sees and makes tokens, types, views, boards, shares, webhooks and
 * alerts. `own`: decides on members, fields, schemas, retention and erasures, and deletes the app.
 */
export type Permission = 'read' | 'change' | 'own';

/** What is not listed here is not allowed. */
const MAY: Readonly<Record<Permission, readonly Role[]>> = {
  read: ['owner', 'maintainer', 'viewer'],
  change: ['owner', 'maintainer'],
  own: ['owner'],
};

export function may(role: Role | null, permission: Permission): boolean {
  return role !== null && MAY[permission].includes(role);
}

/** For `role = ANY(…)`. */
export function rolesThat(permission: Permission): Role[] {
  return [...MAY[permission]];
}

export function permissionsOf(role: Role): readonly Permission[] {
  return (['read', 'change', 'own'] as const).filter((permission) => may(role, permission));
}
