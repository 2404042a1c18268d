import { availableEngines } from '../support/database.ts';
import { storageContract } from './storage.contract.ts';

for (const engine of availableEngines()) storageContract(engine);
