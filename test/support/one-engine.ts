/**
 * For the projects that run the suites per engine on one more engine: skips the other tests of the same files, which the
 * project `fast` has run. An engine's own suites have its name in their path or in a name around them.
 */
import { beforeEach } from 'vitest';

const ENGINE = process.env.TEST_ENGINES ?? '';

beforeEach(({ task, skip }) => {
  const names = [task.file.name, task.name];
  for (let suite = task.suite; suite !== undefined; suite = suite.suite) names.push(suite.name);
  if (!names.some((name) => name.toLowerCase().includes(ENGINE))) skip('does not run per engine');
});
