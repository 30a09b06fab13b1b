import { useState } from 'preact/hooks';
import { localTime } from '../../base/local-time.ts';
import type { EventRecord } from '../../control/event-model.ts';
import { eventLine } from '../../mount/mount-event.ts';
import { html, type View } from './html.ts';
import type { Model } from './model.ts';

const SHOWN_STEP = 200;
/** Events that a person should know about. */
const TROUBLE: ReadonlySet<EventRecord['event']['type']> = new Set([
  'conflict',
  'parked',
  'taken-back',
  'held-back',
  'pin-stuck',
  'quota-low',
  'offline',
  'sign-in-needed',
]);

/** The event history of all accounts, newest first. */
export function ActivityPage({ model }: { readonly model: Model }): View {
  const [text, setText] = useState('');
  const [isTroubleOnly, setTroubleOnly] = useState(false);
  const [shownMax, setShownMax] = useState(SHOWN_STEP);
  const wanted = text.toLowerCase();
  const rows = model.accounts
    .flatMap(({ name, username, events }) =>
      events.map((record) => ({ ...record, name, username, line: eventLine(record.event) })),
    )
    .filter(({ event, line }) => (!isTroubleOnly || TROUBLE.has(event.type)) && line.toLowerCase().includes(wanted))
    .sort((one, other) => other.atMs - one.atMs || other.seq - one.seq);
  const hasSeveral = model.accounts.length > 1;
  return html`<h1>Activity</h1>
    <div class="buttons" role="search"><label class="inline">Filter <input type="search" value=${text} onInput=${(event: Event) => setText((event.target as HTMLInputElement).value)} /></label>
      <label class="inline"><input type="checkbox" checked=${isTroubleOnly} onChange=${() => setTroubleOnly(!isTroubleOnly)} /> only what needs attention</label></div>
    ${rows.length === 0 ? html`<p class="quiet">No such events.</p>` : null}
    <ol class="events" aria-label="Events, newest first">${rows.slice(0, shownMax).map(
      ({
        name,
        seq,
        atMs,
        event,
        line,
        username,
      }) => html`<li key=${`${name} ${seq}`} class=${TROUBLE.has(event.type) ? 'bad-text' : ''}>
        <time class="quiet">${localTime(atMs)}</time> <span class="said">${line}</span>${hasSeveral ? html` <span class="quiet">${username}</span>` : null}</li>`,
    )}</ol>
    ${rows.length > shownMax ? html`<p><button type="button" onClick=${() => setShownMax(shownMax + SHOWN_STEP)}>Show more</button></p>` : null}`;
}
