/**
 * Loaded into a server by NODE_OPTIONS=--import. PLANTED_FAULTS names a file: while it holds the name of a system error,
 * each `connect` by TCP fails with it at once; at SIGUSR2 its second word, `exception` or `rejection`, happens.
 */
import { readFileSync } from 'node:fs';
import { constants } from 'node:os';

const words = () => readFileSync(process.env.PLANTED_FAULTS, 'utf8').trim().split(' ');

const { TCP } = process.binding('tcp_wrap');
const { connect } = TCP.prototype;
TCP.prototype.connect = function (...parameters) {
  const errno = constants.errno[words()[0]];
  return errno === undefined ? connect.apply(this, parameters) : -errno;
};

process.on('SIGUSR2', () => {
  const planted = new Error('the planted fault');
  if (words()[1] === 'rejection') Promise.reject(planted);
  else
    setImmediate(() => {
      throw planted;
    });
});
