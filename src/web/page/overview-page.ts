import { localTime } from '../../base/local-time.ts';
import { formatBytes, formatDuration } from '../../config/units.ts';
import type { Status, Transfer } from '../../control/status-model.ts';
import type { LiveAccount } from '../live-model.ts';
import { call } from './connection.ts';
import { ActionButton, Amount, address, shownName } from './controls.ts';
import { html, type View } from './html.ts';
import type { Model } from './model.ts';
import { ThroughputPlot } from './throughput-plot.ts';

const PENDING_SHOWN_MAX = 100;
const PAUSE_MS = 2 * 3_600_000;

export function OverviewPage({ model }: { readonly model: Model }): View {
  const { accounts, peaks } = model;
  return html`<h1>Overview</h1>${accounts.map((account) =>
    account.status === null
      ? html`<${Unmounted} key=${account.name} account=${account} />`
      : html`<${Mounted} key=${account.name} account=${account} status=${account.status} peak=${peaks[account.name] ?? 0} />`,
  )}`;
}

const BADGES = {
  none: 'not mounted',
  running: 'connecting',
  silent: 'does not answer',
  foreign: 'of another user',
} as const;

function Unmounted({ account }: { readonly account: LiveAccount }): View {
  const why = {
    none: 'Not mounted.',
    running: 'Connecting to the mount.',
    silent: 'The mount does not answer. Run cfs doctor in a terminal: it names the cause and the remedy.',
    foreign: 'The mount belongs to another user of this machine.',
  }[account.mount];
  return html`<section class="card" aria-label=${account.username}>
    <h2>${shownName(account.username)}</h2>
    <p><span class=${`badge ${account.mount === 'silent' ? 'bad' : 'off'}`}>${BADGES[account.mount]}</span></p>
    <p>${why} ${account.mount === 'none' ? html`<a href="#/accounts">Mount it</a>` : null}</p></section>`;
}

function Mounted(props: { readonly account: LiveAccount; readonly status: Status; readonly peak: number }): View {
  const { account, status, peak } = props;
  const { name } = account;
  return html`<section class="card" aria-label=${account.username}>
    <div class="head"><div><h2>${shownName(account.username)}</h2>
      <p class="quiet">${shownName(status.directory)} · <a href=${address('files', name, '')}>files</a></p></div>
      <${ConnectionBadge} account=${account} status=${status} /></div>
    <${PendingLine} status=${status} transfers=${account.transfers} peak=${peak} />
    <div class="buttons">
      ${
        status.paused == null
          ? html`<${ActionButton} label="Pause" title=${account.username} run=${() => call('pause', { account: name, forMs: null })} />
            <${ActionButton} label="Pause for 2 hours" title=${account.username} run=${() => call('pause', { account: name, forMs: PAUSE_MS })} />`
          : html`<${ActionButton} label="Resume" title=${account.username} kind="main" run=${() => call('resume', { account: name })} />`
      }
      <${ActionButton} label="Push now" title=${account.username} run=${() => call('push', { account: name })} />
      <${ActionButton} label="Look for changes" title=${account.username} run=${() => call('refresh', { account: name, accept: false })} />
    </div>
    <${Transfers} transfers=${account.transfers} />
    <div class="amounts">
      <${Amount} label="Cache" value=${status.cache.usedBytes} of=${status.cache.limitBytes}
        text=${`${formatBytes(status.cache.usedBytes)} of ${formatBytes(status.cache.limitBytes)}`} />
      ${
        status.quota === null
          ? null
          : html`<${Amount} label="Storage" value=${status.quota.usedBytes} of=${status.quota.limitBytes}
            text=${`${formatBytes(status.quota.usedBytes)} of ${formatBytes(status.quota.limitBytes)}`} />`
      }
    </div>
    <${ThroughputPlot} samples=${account.samples} />
    <${Waiting} status=${status} />
  </section>`;
}

function ConnectionBadge({ account, status }: { readonly account: LiveAccount; readonly status: Status }): View {
  const { connection, paused, phase } = status;
  if (account.mount === 'silent') return html`<span class="badge bad">does not answer</span>`;
  if (phase === 'draining') return html`<span class="badge off">unmounting</span>`;
  if (connection.state === 'sign-in-needed') return html`<a class="badge bad" href="#/accounts">sign in again</a>`;
  if (connection.state === 'offline')
    return html`<span class="badge bad" title=${connection.reason ?? ''}>offline: ${connection.reason ?? ''}</span>`;
  if (paused != null)
    return html`<span class="badge off">paused${paused.untilMs === null ? '' : ` until ${localTime(paused.untilMs)}`}</span>`;
  return html`<span class=${`badge ${connection.state === 'online' ? 'good' : 'off'}`}>${connection.state}</span>`;
}

function PendingLine(props: {
  readonly status: Status;
  readonly transfers: readonly Transfer[];
  readonly peak: number;
}): View {
  const { count, bytes } = props.status.pending;
  const parked = props.status.parked.length;
  const needs = parked === 0 ? null : html` · <a href="#/needs">${parked} need you</a>`;
  if (count === 0)
    return html`<p class="line"><strong>${parked === 0 ? 'Everything is uploaded' : 'Nothing waits to be uploaded'}</strong>${needs}</p>`;
  const ups = props.transfers.filter(({ direction }) => direction === 'up');
  const rate = ups.reduce((sum, each) => sum + each.bytesPerSecond, 0);
  const sent = ups.reduce((sum, each) => sum + each.doneBytes, 0);
  const left = Math.max(0, bytes - sent);
  const pace = rate > 0 ? `, ${formatBytes(Math.round(rate))}/s, ${formatDuration((left / rate) * 1000)} left` : '';
  const changes = count === 1 ? '1 change waits' : `${count.toLocaleString()} changes wait`;
  return html`<p class="line"><strong>${changes}, ${formatBytes(bytes)}${pace}</strong>${needs}</p>
    <progress aria-label="Uploaded of what waited" max=${props.peak || 1} value=${Math.max(0, props.peak - left)}></progress>`;
}

function Transfers({ transfers }: { readonly transfers: readonly Transfer[] }): View {
  if (transfers.length === 0) return null;
  return html`<table class="transfers"><caption>Now</caption><tbody>${transfers.map(
    ({ path, direction, doneBytes, totalBytes, bytesPerSecond, leftMs }) => html`<tr key=${`${direction}${path}`}>
      <th scope="row"><span class=${direction} aria-label=${direction === 'up' ? 'uploading' : 'downloading'}>${direction === 'up' ? '↑' : '↓'}</span> ${shownName(path)}</th>
      <td><progress aria-label=${`Progress of ${path}`} max=${totalBytes || 1} value=${doneBytes}></progress></td>
      <td class="number">${formatBytes(bytesPerSecond)}/s${leftMs === null ? '' : `, ${formatDuration(leftMs)} left`}</td></tr>`,
  )}</tbody></table>`;
}

function Waiting({ status }: { readonly status: Status }): View {
  const { changes, count } = status.pending;
  if (count === 0) return null;
  const shown = changes.slice(0, PENDING_SHOWN_MAX);
  const more = count - shown.length;
  return html`<details><summary>What waits</summary><ul class="paths">${shown.map(
    ({ path, kind, sizeBytes, attempts }) => html`<li key=${path}>${shownName(path)}
      <span class="quiet"> ${kind === 'upload' ? formatBytes(sizeBytes ?? 0) : kind.replace('-', ' ')}${attempts > 0 ? `, ${attempts} failed attempts` : ''}</span></li>`,
  )}</ul>${more > 0 ? html`<p class="quiet">and ${more.toLocaleString()} more</p>` : null}</details>`;
}
