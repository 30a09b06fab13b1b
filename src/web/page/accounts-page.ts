import { useEffect, useState } from 'preact/hooks';
import { formatBytes } from '../../config/units.ts';
import type { LiveAccount } from '../live-model.ts';
import type { Said } from '../page-call.ts';
import { call } from './connection.ts';
import { ActionButton, act, DangerButton, shownName } from './controls.ts';
import { DirectoryChooser } from './directory-chooser.ts';
import { html, type View } from './html.ts';
import type { Model } from './model.ts';

export function AccountsPage({ model }: { readonly model: Model }): View {
  const { accounts, home } = model;
  return html`<h1>Accounts</h1>
    ${accounts.length === 0 ? html`<p>There is no account on this machine yet. Sign in below, then choose a folder.</p>` : null}
    ${accounts.map((account) => html`<${AccountCard} key=${account.name} account=${account} home=${home} />`)}
    <${SignInForm} isFirst=${accounts.length === 0} />`;
}

function AccountCard({ account, home }: { readonly account: LiveAccount; readonly home: string }): View {
  const { name, username, origin, status } = account;
  return html`<section class="card" aria-label=${username}>
    <h2>${shownName(username)}</h2><p class="quiet">${shownName(origin)}</p>
    ${
      status === null
        ? html`<${MountForm} account=${account} home=${home} />`
        : html`<p>Mounted at <strong>${shownName(status.directory)}</strong></p><${ServiceLine} name=${name} directory=${status.directory} />
          <div class="buttons"><${ActionButton} label="Unmount" title=${username} run=${() => call('unmount', { account: name })} />
          <${SignOut} account=${account} /></div>`
    }</section>`;
}

/** Whether the directory is mounted at each sign-in to this machine. */
function ServiceLine({ name, directory }: { readonly name: string; readonly directory: string }): View {
  const [isInstalled, set] = useState<boolean | null>(null);
  const look = async (): Promise<void> => set((await call('service', { directory })).isInstalled);
  useEffect(() => void look().catch(() => {}), [directory]);
  const then = async (run: Promise<Said>): Promise<Said> => {
    const said = await run;
    await look();
    return said;
  };
  if (isInstalled === null) return null;
  return isInstalled
    ? html`<p>It is mounted at each sign-in to this machine. <${DangerButton} label="Stop that" title=${directory}
        question=${async () => 'The directory is unmounted, and no longer mounted at sign-in. Nothing is lost.'}
        run=${() => then(call('removeService', { directory }))} /></p>`
    : html`<p>It is not mounted automatically. <${ActionButton} label="Mount at each sign-in" title=${directory}
        run=${() => then(installed(name, directory))} /></p>`;
}

/** The unit mounts itself, so the present mount ends first. */
async function installed(account: string, directory: string): Promise<Said> {
  await call('unmount', { account });
  const said = await call('installService', { account, directory });
  if (!said.isDone) await call('mount', { account, directory });
  return said;
}

function MountForm({ account, home }: { readonly account: LiveAccount; readonly home: string }): View {
  const [directory, setDirectory] = useState(`${home}/Cloud`);
  const [isChoosing, setChoosing] = useState(false);
  const { name, username } = account;
  const choose = (path: string): void => {
    setDirectory(path);
    setChoosing(false);
  };
  return html`<p>Not mounted. The folder: <strong>${shownName(directory)}</strong>${' '}
      <button type="button" class="small" aria-expanded=${isChoosing} onClick=${() => setChoosing(!isChoosing)}>Choose another…</button></p>
    ${isChoosing ? html`<${DirectoryChooser} start=${home} choose=${choose} />` : null}
    <div class="buttons">
      <${ActionButton} label="Mount now" title=${username} kind="main" run=${() => call('mount', { account: name, directory })} />
      <${ActionButton} label="Mount now and at each sign-in" title=${username} run=${() => mountedAlways(name, directory)} />
      <${SignOut} account=${account} /></div>`;
}

/** Where no systemd manager answers, the directory is mounted all the same, and the reason is shown. */
async function mountedAlways(account: string, directory: string): Promise<Said> {
  await call('makeDirectory', { path: directory }).catch(() => {});
  const said = await call('installService', { account, directory });
  if (said.isDone) return said;
  const mounted = await call('mount', { account, directory });
  return { said: `${said.said}\n${mounted.said}`, isDone: false };
}

function SignOut({ account }: { readonly account: LiveAccount }): View {
  const { name, username, status } = account;
  const signOut = (forget: boolean) => async (): Promise<Said> => {
    if (status !== null) await call('unmount', { account: name });
    return call('signOut', { account: name, forget });
  };
  const kept = async (): Promise<string> =>
    `${await lossOf(account)} The token and the keys are removed from this machine. Local copies and unpushed changes stay for the next sign-in.`;
  const lost = async (): Promise<string> =>
    `${await lossOf(account)} The token, the keys and all local copies are removed from this machine; what the service has stays there. It is refused while data exists on this machine only.`;
  return html`<${DangerButton} label="Sign out…" title=${username} question=${kept} run=${signOut(false)} />
    <${DangerButton} label="Sign out and remove copies…" title=${username} question=${lost} run=${signOut(true)} />`;
}

/** What exists on this machine only. */
async function lossOf({ name, status }: LiveAccount): Promise<string> {
  if (status !== null) {
    const { pending, parked, local } = status;
    const count = pending.count + parked.length;
    if (count + (local?.count ?? 0) === 0) return 'Everything is with the service.';
    return `${count} changes (${formatBytes(pending.bytes)}) and ${local?.count ?? 0} files with local-only names exist on this machine only.`;
  }
  const { pending, localOnly } = await call('signOutLoss', { account: name });
  if (pending + localOnly === 0) return 'Everything is with the service.';
  return `${pending} changes and ${localOnly} files with local-only names exist on this machine only.`;
}

const FIELDS = [
  { name: 'url', label: 'Address of the service', type: 'url', complete: 'url', hint: 'https://api.example.com' },
  { name: 'username', label: 'User name', type: 'text', complete: 'username', hint: 'ann@example.com' },
  { name: 'password', label: 'Password', type: 'password', complete: 'current-password', hint: '' },
  { name: 'application', label: 'Application ID', type: 'text', complete: 'off', hint: '' },
  { name: 'accessKeyId', label: 'Access key ID', type: 'text', complete: 'off', hint: '' },
  { name: 'privateAccessKey', label: 'Private access key', type: 'password', complete: 'off', hint: '' },
] as const;
type Field = (typeof FIELDS)[number]['name'];
const EMPTY = Object.fromEntries(FIELDS.map(({ name }) => [name, ''])) as Record<Field, string>;

function SignInForm({ isFirst }: { readonly isFirst: boolean }): View {
  const [values, setValues] = useState(EMPTY);
  const [insecure, setInsecure] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    setBusy(true);
    // Kept after a refusal, so that only the wrong field is typed again; forgotten after success.
    if (await act(() => call('signIn', { ...values, insecure }))) setValues(EMPTY);
    setBusy(false);
  };
  return html`<details class="card" open=${isFirst}><summary><h2>Add an account</h2></summary>
    <form onSubmit=${submit}>
      ${FIELDS.map(
        ({ name, label, type, complete, hint }) => html`<label key=${name}>${label}
          <input name=${name} type=${type} required autocomplete=${complete} placeholder=${hint} value=${values[name]}
            spellcheck=${false} autocapitalize="off"
            onInput=${(event: Event) => setValues({ ...values, [name]: (event.target as HTMLInputElement).value })} /></label>`,
      )}
      <label class="inline"><input type="checkbox" checked=${insecure} onChange=${() => setInsecure(!insecure)} />
        Allow an unencrypted connection to another machine (exposes the password)</label>
      <p class="quiet">The password is exchanged for a token and not stored. Token and keys are kept in a file that only you can read.</p>
      <div class="buttons"><button type="submit" class="main" disabled=${isBusy} aria-busy=${isBusy}>Sign in</button></div>
    </form></details>`;
}
