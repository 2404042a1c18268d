/** `app limit`: limits of one app, above or below those that the settings give to all. */
import { InvalidArgumentError } from 'commander';
import type { AppLimits } from '../api-types/answers.ts';
import { type OwnLimits, readAppLimits, setAppLimits } from '../apps/app-limits.ts';
import { WrongInput } from '../errors.ts';
import { APP_OPTION } from './options.ts';
import { formatFields } from './output.ts';
import type { Answer, Command } from './session.ts';

interface LimitOptions extends Partial<Record<keyof OwnLimits, number>> {
  readonly app: string;
  readonly default?: true;
}

export function addLimitCommand(app: Command): void {
  app
    .command('limit')
    .description('show the limits of an app, or set those that are named')
    .requiredOption(...APP_OPTION)
    .option('--create-per-minute <n>', 'create requests in any 60 seconds', parseLimit)
    .option('--bytes-per-day <n>', 'bytes of payloads on a day (UTC)', parseLimit)
    .option('--types <n>', 'event types that the app may have', parseLimit)
    .option('--default', 'remove all limits of its own: the settings apply again')
    .run(async ({ sql, config }, options: LimitOptions) => {
      const { createPerMinute, bytesPerDay, types, default: resets } = options;
      const limits = {
        ...(createPerMinute !== undefined && { createPerMinute }),
        ...(bytesPerDay !== undefined && { bytesPerDay }),
        ...(types !== undefined && { types }),
      };
      const isNamed = Object.keys(limits).length > 0;
      if (resets && isNamed) throw new WrongInput('--default removes all limits: name no other one with it');
      if (resets) return shown(await setAppLimits(sql, config, { appId: options.app, limits: NONE }));
      return shown(
        isNamed
          ? await setAppLimits(sql, config, { appId: options.app, limits })
          : await readAppLimits(sql, config, options.app),
      );
    });
}

const NONE: OwnLimits = { createPerMinute: null, bytesPerDay: null, types: null };

function shown(limits: AppLimits): Answer {
  const { appId, own } = limits;
  const line = (name: keyof OwnLimits): string => {
    const limit = limits[name];
    if (limit === null) return 'no limit';
    return own[name] === null ? `${limit} (default)` : String(limit);
  };
  const text = formatFields({
    App: appId,
    'Create requests per minute': line('createPerMinute'),
    'Bytes per day': line('bytesPerDay'),
    'Event types': line('types'),
  });
  return { json: limits, text };
}

function parseLimit(text: string): number {
  if (/^\d{1,15}$/.test(text)) return Number(text);
  throw new InvalidArgumentError('Write a whole number of at least 1.');
}
