/** `tidemark recount`: rebuilds the counts of some days from their rows. */
import { DAY_MS, utcDay } from '../base/time-units.ts';
import { WrongInput } from '../errors.ts';
import type { RecountedDay } from '../storage/counts/recount.ts';
import { parseDay } from './duration.ts';
import { formatFields } from './output.ts';
import type { Command } from './session.ts';
import { type Installation, withInstallation } from './transfer/installation.ts';
import { grouped, Progress } from './transfer/progress.ts';

const HELP = `
Counts are kept exact without this. It is for counts that "tidemark doctor" has found to differ from their rows,
and may run while the service does. Days are those of UTC. Days whose events retention has removed are left as
they are: their counts are all that is left of them.`;

interface RecountResult {
  readonly days: number;
  /** Days whose counts differed from the rows, as dates, with the number of different counts. */
  readonly differing: readonly { readonly day: string; readonly counts: number }[];
  /** Days before the retention boundary. */
  readonly leftOut: number;
}

export function addRecountCommand(program: Command): void {
  program
    .command('recount')
    .description('rebuild the counts of some days from their events')
    .requiredOption('--from <day>', 'the first day, such as 2026-01-31', parseDay)
    .option('--to <day>', 'the last day, inclusive; the first day by default', parseDay)
    .addHelpText('after', HELP)
    .answer(async ({ from, to = from }: { from: string; to?: string }) => {
      if (to < from) throw new WrongInput('--to must not be before --from');
      const result = await withInstallation((installation) =>
        runRecount(installation, Date.parse(from), Date.parse(to)),
      );
      return { json: result, text: report(result) };
    });
}

async function runRecount({ storage, sql }: Installation, from: number, to: number): Promise<RecountResult> {
  const all = (to - from) / DAY_MS + 1;
  const progress = new Progress();
  const differing: { day: string; counts: number }[] = [];
  let days = 0;
  const onDay = ({ day, differing: counts }: RecountedDay): void => {
    days += 1;
    if (counts > 0) differing.push({ day: utcDay(day), counts });
    progress.update(() => ({
      fraction: (day - from) / DAY_MS / all,
      text: `${grouped(days)} days, ${grouped(differing.length)} of which differed`,
    }));
  };
  try {
    const { leftOut } = await storage.recount(sql, { from, until: to + DAY_MS }, onDay);
    return { days, differing, leftOut };
  } finally {
    progress.end();
  }
}

function report({ days, differing, leftOut }: RecountResult): string {
  return formatFields({
    'Days recounted': grouped(days),
    'Days that differed':
      differing.length === 0
        ? 'none'
        : differing.map(({ day, counts }) => `${day} (${grouped(counts)} counts)`),
    ...(leftOut > 0 && { 'Days before the retention boundary': grouped(leftOut) }),
  });
}
