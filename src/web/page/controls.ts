import { useEffect, useRef, useState } from 'preact/hooks';
import { visible } from '../../mount/mount-event.ts';
import type { Said } from '../page-call.ts';
import { SignedOutError } from './connection.ts';
import { html, type View } from './html.ts';
import { announce, ask, dismiss, type Model, update } from './model.ts';

/** Does what a button is for, and shows how it ended. A `Said` or a text is shown; nothing for null. */
export async function act(run: () => Promise<Said | string | null>): Promise<boolean> {
  try {
    const result = await run();
    if (result === null) return true;
    const { said, isDone } = typeof result === 'string' ? { said: result, isDone: true } : result;
    if (said !== '') announce(isDone ? 'done' : 'failed', said);
    return isDone;
  } catch (error) {
    if (error instanceof SignedOutError) update({ state: 'signed-out' });
    else announce('failed', error instanceof Error ? error.message : String(error));
    return false;
  }
}

interface ButtonProps {
  readonly label: string;
  readonly run: () => Promise<Said | string | null>;
  /** For a screen reader, where the label alone does not say of what. */
  readonly title?: string;
  readonly kind?: 'main' | 'danger';
  readonly isDisabled?: boolean;
}

export function ActionButton({ label, run, title, kind, isDisabled = false }: ButtonProps): View {
  const [isBusy, setBusy] = useState(false);
  const click = async (): Promise<void> => {
    setBusy(true);
    await act(run);
    setBusy(false);
  };
  return html`<button type="button" class=${kind ?? ''} aria-label=${title === undefined ? label : `${label}: ${title}`}
    aria-busy=${isBusy} disabled=${isBusy || isDisabled} onClick=${click}>${label}</button>`;
}

/** A button that asks before it acts. */
export function DangerButton(props: ButtonProps & { readonly question: () => Promise<string> }): View {
  const { question, run, ...rest } = props;
  const asked = async (): Promise<Said | string | null> => {
    const text = await question();
    return (await ask({ title: props.title ?? props.label, text, confirm: props.label.replace('…', '') }))
      ? run()
      : null;
  };
  return html`<${ActionButton} ...${rest} kind="danger" run=${asked} />`;
}

/** A share of an amount, with its words. */
export function Amount(props: {
  readonly label: string;
  readonly of: number;
  readonly value: number;
  readonly text: string;
}): View {
  const { label, value, text } = props;
  return html`<div class="amount"><span>${label}</span><meter aria-label=${label} min="0" max=${props.of || 1} value=${value}
    high=${(props.of || 1) * 0.9}></meter><span class="quiet">${text}</span></div>`;
}

/** A name as it is shown: control characters are visible. */
export function shownName(path: string): string {
  return visible(path === '' ? 'the top folder' : path);
}

export function Dialogs({ model }: { readonly model: Model }): View {
  const dialog = useRef<HTMLDialogElement>(null);
  const { question, notices } = model;
  useEffect(() => {
    if (question !== null && dialog.current?.open === false) dialog.current.showModal();
    if (question === null && dialog.current?.open === true) dialog.current.close();
  }, [question]);
  const answer = (isYes: boolean) => () => question?.answer(isYes);
  return html`<dialog ref=${dialog} aria-labelledby="question" onCancel=${(event: Event) => {
    event.preventDefault();
    question?.answer(false);
  }}>
      ${
        question === null
          ? null
          : html`<h2 id="question">${question.title}</h2>
            <p class="said">${question.text}</p>
            <div class="buttons"><button type="button" onClick=${answer(false)}>Cancel</button>
            <button type="button" class="danger" onClick=${answer(true)}>${question.confirm}</button></div>`
      }
    </dialog>
    <div class="notices" role="status" aria-live="polite">${notices.map(
      ({ id, kind, text }) => html`<div key=${id} class=${`notice ${kind}`}>
        <span class="said">${text}</span>
        <button type="button" aria-label="Dismiss" onClick=${() => dismiss(id)}>×</button></div>`,
    )}</div>`;
}

/** Hands bytes to the browser's download. */
export function saveAs(name: string, blob: Blob): void {
  const link = document.createElement('a');
  const address = URL.createObjectURL(blob);
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}

/** The last part of a path. */
export function nameOf(path: string): string {
  return path.slice(path.lastIndexOf('/') + 1);
}

/** A path in the address: names may contain every character but the slash. */
export function address(page: string, account: string, path: string): string {
  return `#/${[page, account, ...path.split('/').filter((name) => name !== '')].map(encodeURIComponent).join('/')}`;
}
