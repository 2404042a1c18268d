// What a run of the tests says in its JSON report, in which titles and messages may hold half a surrogate pair.
//   node .ci/report.mjs failed FILE          the files that failed, one a line
//   node .ci/report.mjs tell AGAIN FIRST     what failed, in the second run (if there was one) and in the first, and how many passed
// Exits 1 where a report that is needed cannot be read.
import { existsSync, readFileSync } from 'node:fs';

const [task, ...paths] = process.argv.slice(2);
const read = (path) => JSON.parse(readFileSync(path, 'utf8'));
const failedOf = ({ testResults }) => testResults.filter(({ status }) => status === 'failed');

if (task === 'failed') {
  for (const name of new Set(failedOf(read(paths[0])).map((file) => file.name))) console.log(name);
} else {
  const [again, first] = paths;
  for (const [path, when] of [
    [again, 'failed alone, too'],
    [first, 'failed'],
  ]) {
    if (path === again && !existsSync(path)) continue;
    for (const { name, message = '', assertionResults } of failedOf(read(path))) {
      console.log(`${when}: ${name} ${message.slice(0, 300)}`);
      for (const { status, fullName, failureMessages } of assertionResults)
        if (status === 'failed')
          console.log(`  ${fullName}\n    ${(failureMessages[0] ?? '').slice(0, 300)}`);
    }
  }
  const { numPassedTests, numFailedTests, numPendingTests } = read(first);
  console.log(`${numPassedTests} passed, ${numFailedTests} failed at first, ${numPendingTests} skipped`);
}
