// What failed in a run of the tests and how many passed, from its JSON report, in which titles and messages may hold half a
// surrogate pair: node .ci/report.mjs FILE. Exits 1 where the report cannot be read.
import { readFileSync } from 'node:fs';

const { testResults, numPassedTests, numFailedTests, numPendingTests } = JSON.parse(
  readFileSync(process.argv[2], 'utf8'),
);
for (const { name, status, message = '', assertionResults } of testResults) {
  if (status !== 'failed') continue;
  console.log(`failed: ${name} ${message.slice(0, 300)}`);
  for (const { status, fullName, failureMessages } of assertionResults)
    if (status === 'failed') console.log(`  ${fullName}\n    ${(failureMessages[0] ?? '').slice(0, 300)}`);
}
console.log(`${numPassedTests} passed, ${numFailedTests} failed, ${numPendingTests} skipped`);
