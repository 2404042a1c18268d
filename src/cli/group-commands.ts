/** Commands for groups of the OIDC issuer, and the roles that they give. */
import { listGroupMappings, mapGroup, unmapGroup } from '../apps/groups.ts';
import { ROLES } from '../base/roles.ts';
import { refused } from '../errors.ts';
import { requireRole } from './account-commands.ts';
import { formatFields, formatTable } from './output.ts';
import type { Command } from './session.ts';

interface Where {
  readonly app?: string;
  readonly all?: true;
}

const GROUP_OPTION = ['--group <name>', 'the group, as OIDC_GROUPS_CLAIM has it'] as const;
const APP_OPTION = ['--app <id>', 'in this app, app_…'] as const;

/** `group map`, `group unmap`, `group list`. */
export function addGroupCommands(program: Command): void {
  const group = program
    .command('group')
    .description('groups of the OIDC issuer, and the roles that they give');
  group
    .command('map')
    .description('let a group give a role, from the next sign-in of each of its members on')
    .requiredOption(...GROUP_OPTION)
    .option(...APP_OPTION)
    .option('--all', 'in every app, also those that are made later')
    .requiredOption('--role <role>', ROLES.join(' or '))
    .run(async ({ sql }, options: Where & { group: string; role: string }) => {
      const mapping = { group: options.group, appId: placeOf(options), role: requireRole(options.role) };
      await mapGroup(sql, mapping);
      return {
        json: mapping,
        text: formatFields({ Group: mapping.group, App: shown(mapping.appId), Role: mapping.role }),
      };
    });
  group
    .command('unmap')
    .description('end what a group gives: its members lose the access at once')
    .requiredOption(...GROUP_OPTION)
    .option(...APP_OPTION)
    .option('--all', 'what it gives in every app')
    .run(async ({ sql }, options: Where & { group: string }) => {
      const mapping = { group: options.group, appId: placeOf(options) };
      if (!(await unmapGroup(sql, mapping)))
        throw refused(
          'notFound',
          `the group ${JSON.stringify(options.group)} has no role there: "group list" shows all`,
        );
      return {
        json: mapping,
        text: formatFields({ Group: mapping.group, App: shown(mapping.appId), Role: 'none' }),
      };
    });
  group
    .command('list')
    .description('list what groups give')
    .list(async ({ sql }) => {
      const groups = await listGroupMappings(sql);
      const rows = groups.map(({ group: name, appId, role }) => [name, shown(appId), role]);
      return {
        json: { groups },
        text: formatTable(['Group', 'App', 'Role'], rows, 'No group gives a role.'),
      };
    });
}

/** The app that the options name; null: every app. */
function placeOf({ app, all }: Where): string | null {
  if ((app === undefined) === (all === undefined))
    throw refused('invalidBody', 'name one app with --app, or every app with --all');
  return app ?? null;
}

function shown(appId: string | null): string {
  return appId ?? 'every app';
}
