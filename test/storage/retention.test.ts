import { availableEngines } from '../support/database.ts';
import { retentionContract } from './retention.contract.ts';

for (const engine of availableEngines()) retentionContract(engine);
