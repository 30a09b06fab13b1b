// The health check of the container image: 0 if `cfs serve` answers a request without a token as it must, by HTTP or by TLS.
// The certificate is not checked: it is for the public name, and this request stays in the container.
import { get } from 'node:http';
import { get as getByTls } from 'node:https';

const PORT = Number(process.argv[2] ?? 8080);
const MS_MAX = 4000;

/**
 * @param {typeof get} request
 * @returns {Promise<boolean>}
 */
function answers(request) {
  return new Promise((resolve) => {
    const options = { host: '127.0.0.1', port: PORT, path: '/user', timeout: MS_MAX, rejectUnauthorized: false };
    const sent = request(options, (response) => {
      response.resume();
      resolve(response.statusCode === 401);
    });
    sent.on('timeout', () => sent.destroy());
    sent.on('error', () => resolve(false));
  });
}

process.exit((await answers(get)) || (await answers(getByTls)) ? 0 : 1);
