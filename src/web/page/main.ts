import { render } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { AccountsPage } from './accounts-page.ts';
import { ActivityPage } from './activity-page.ts';
import { follow, SignedOutError, takeCodeOfAddress, useCode } from './connection.ts';
import { act, Dialogs } from './controls.ts';
import { FilePage } from './file-page.ts';
import { FilesPage, FilesStart } from './files-page.ts';
import { html, type View } from './html.ts';
import { announce, apply, getModel, type Model, needsOf, update, useModel } from './model.ts';
import { loadConflicts, NeedsPage } from './needs-page.ts';
import { OverviewPage } from './overview-page.ts';
import { TrashPage } from './trash-page.ts';

/** In the order of the keys 1 to 5. */
const PAGES = [
  ['overview', 'Overview'],
  ['needs', 'Needs you'],
  ['files', 'Files'],
  ['activity', 'Activity'],
  ['accounts', 'Accounts'],
] as const;

interface Route {
  readonly page: string;
  readonly account: string;
  readonly path: string;
}

function routeOf(hash: string): Route {
  const [page = '', account = '', ...names] = hash.replace(/^#\/?/, '').split('/').map(decoded);
  return { page, account, path: names.join('/') };
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // typed by hand
  }
}

function App(): View {
  const model = useModel();
  const [route, setRoute] = useState(routeOf(location.hash));
  useEffect(() => {
    const moved = (): void => {
      setRoute(routeOf(location.hash));
      document.querySelector<HTMLElement>('main')?.focus();
    };
    const pressed = (event: KeyboardEvent): void => {
      const isTyping = event.target instanceof HTMLInputElement || event.ctrlKey || event.altKey || event.metaKey;
      const page = isTyping ? undefined : PAGES[Number(event.key) - 1];
      if (page !== undefined) location.hash = `#/${page[0]}`;
    };
    addEventListener('hashchange', moved);
    addEventListener('keydown', pressed);
    return () => {
      removeEventListener('hashchange', moved);
      removeEventListener('keydown', pressed);
    };
  }, []);
  const isEmpty = model.state === 'live' && model.accounts.length === 0;
  useEffect(() => {
    // The first page stays after the sign-in on it: the next step is there.
    if (!isEmpty || route.page !== '') return;
    history.replaceState(null, '', '#/accounts');
    setRoute(routeOf(location.hash));
  }, [isEmpty]);
  const needs = needsOf(model);
  useEffect(() => {
    document.title = needs > 0 ? `(${needs}) Cloud folders` : 'Cloud folders';
  }, [needs]);
  if (model.state === 'signed-out')
    return html`<main tabindex="-1"><${CodeForm} /></main><${Dialogs} model=${model} />`;
  if (model.state === 'connecting') return html`<main tabindex="-1"><p class="quiet">Connecting…</p></main>`;
  const page = route.page || 'overview';
  return html`<a class="skip" href="#content" onClick=${skip}>To the content</a>
    <header><span class="title">Cloud folders</span><nav aria-label="Pages">${PAGES.map(
      ([id, label]) =>
        html`<a key=${id} href=${`#/${id}`} aria-current=${isIn(page, id) ? 'page' : undefined}>${label}${id === 'needs' && needs > 0 ? html` <span class="count">${needs}</span>` : null}</a>`,
    )}</nav></header>
    ${model.state === 'lost' ? html`<p class="banner" role="alert">The program behind this page has ended or does not answer. Mounts are not affected. Run <code>cfs web --open</code> again.</p>` : null}
    <main id="content" tabindex="-1"><${Page} page=${page} route=${route} model=${model} /></main>
    <footer class="quiet">cfs ${model.version} · keys 1 to 5 switch pages · <a href="/licences.txt">licences</a></footer>
    <${Dialogs} model=${model} />`;
}

function skip(event: Event): void {
  event.preventDefault();
  document.querySelector<HTMLElement>('main')?.focus();
}

function isIn(page: string, id: string): boolean {
  return page === id || (id === 'files' && (page === 'file' || page === 'trash'));
}

function Page({ page, route, model }: { readonly page: string; readonly route: Route; readonly model: Model }): View {
  const { account, path } = route;
  switch (page) {
    case 'needs':
      return html`<${NeedsPage} model=${model} />`;
    case 'files':
      return account === ''
        ? html`<${FilesStart} model=${model} page="files" />`
        : html`<${FilesPage} account=${account} path=${path} />`;
    case 'file':
      return html`<${FilePage} account=${account} path=${path} />`;
    case 'trash':
      return html`<${TrashPage} account=${account} />`;
    case 'activity':
      return html`<${ActivityPage} model=${model} />`;
    case 'accounts':
      return html`<${AccountsPage} model=${model} />`;
    default:
      return html`<${OverviewPage} model=${model} />`;
  }
}

/** The form for a browser without the token: the code that `cfs web` prints gives it one. */
function CodeForm(): View {
  const [code, setCode] = useState('');
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    await act(async () => {
      await useCode(code.trim());
      void run();
      return null;
    });
  };
  return html`<h1>Cloud folders</h1><p>This browser is not signed in to the page. Run <code>cfs web --open</code>, or enter the code that <code>cfs web</code> printed; each code works once.</p>
    <form onSubmit=${submit}><label>Code <input required autocomplete="off" spellcheck=${false} value=${code} onInput=${(event: Event) => setCode((event.target as HTMLInputElement).value)} /></label>
    <div class="buttons"><button type="submit" class="main">Open the page</button></div></form>`;
}

async function run(): Promise<void> {
  update({ state: 'connecting' });
  try {
    await follow(
      (messages) => {
        for (const account of apply(messages)) void loadConflicts(account);
      },
      () => {
        if (getModel().state === 'live') update({ state: 'lost' });
      },
    );
  } catch (error) {
    if (!(error instanceof SignedOutError)) throw error;
    update({ state: 'signed-out' });
  }
}

const codeOfAddress = takeCodeOfAddress();
render(html`<${App} />`, document.body);
try {
  if (codeOfAddress !== null) await useCode(codeOfAddress);
} catch (error) {
  announce('failed', (error as Error).message);
}
void run();
