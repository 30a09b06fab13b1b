import { useEffect, useState } from 'preact/hooks';
import { localTime } from '../../base/local-time.ts';
import { formatBytes } from '../../config/units.ts';
import type { FileVersion, FileView } from '../page-call.ts';
import { bytes, call } from './connection.ts';
import { ActionButton, act, DangerButton, nameOf, saveAs, shownName } from './controls.ts';
import { Crumbs } from './files-page.ts';
import { html, type View } from './html.ts';
import { Picture, pictureTypeOf, TEXT_BYTES_MAX, TextDiff, textOf } from './preview.ts';

/** Size of a picture that is fetched as a whole for a preview. */
const WHOLE_BYTES_MAX = 4 * 1024 ** 2;

interface Compared {
  readonly version: string;
  readonly view: View;
}

/** A file with its versions on a line. */
export function FilePage({ account, path }: { readonly account: string; readonly path: string }): View {
  const [file, setFile] = useState<FileView | null>(null);
  const [compared, setCompared] = useState<Compared | null>(null);
  const load = (): Promise<boolean> =>
    act(async () => {
      setFile(await call('file', { account, path }));
      return null;
    });
  useEffect(() => {
    setFile(null);
    setCompared(null);
    void load();
  }, [account, path]);
  const save = async (): Promise<null> => {
    saveAs(nameOf(path), await bytes('content', { account, path }));
    return null;
  };
  const compare = async (newer: FileVersion, older: FileVersion): Promise<null> => {
    const texts = await Promise.all(
      [older, newer].map(async ({ name }) => textOf(await bytes('version', { account, path, version: name }))),
    );
    const [before, after] = texts;
    const view =
      before == null || after == null
        ? html`<p class="quiet">They are not texts: save both to compare them.</p>`
        : html`<${TextDiff} before=${before} after=${after} beforeLabel=${versionTime(older)} afterLabel=${versionTime(newer)} />`;
    setCompared({ version: newer.name, view });
    return null;
  };
  const act1 = (name: 'pin' | 'unpin' | 'evict') => () => call(name, { account, path });
  return html`<h1>Timeline</h1><${Crumbs} account=${account} path=${path} />
    <div class="buttons"><${ActionButton} label="Save as…" title=${path} run=${save} />
      <${ActionButton} label="Pin" title=${path} run=${act1('pin')} /><${ActionButton} label="Unpin" title=${path} run=${act1('unpin')} />
      <${ActionButton} label="Free space" title=${path} run=${act1('evict')} /></div>
    ${
      file === null
        ? html`<p class="quiet">Reading the versions…</p>`
        : html`
      <${LinkLine} account=${account} path=${path} file=${file} load=${load} />
      ${file.isPending ? html`<p>The local content is not on the service yet: it becomes the next version.</p>` : null}
      <ol class="timeline" aria-label="Versions, newest first">${file.versions.map((version, index) => {
        const older = file.versions[index + 1];
        return html`<li key=${version.name}><span class="time">${versionTime(version)}</span>
          <span class="quiet">${formatBytes(version.sizeBytes)}${index === 0 ? ', newest' : ''}</span>
          <${VersionPicture} account=${account} path=${path} version=${version} />
          <span class="buttons">
            ${older === undefined || pictureTypeOf(path) !== null || Math.max(version.sizeBytes, older.sizeBytes) > TEXT_BYTES_MAX ? null : html`<${ActionButton} label="Compare" title=${`version of ${versionTime(version)} with the one before`} run=${() => compare(version, older)} />`}
            ${
              index === 0
                ? null
                : html`<${DangerButton} label="Restore…" title=${`version of ${versionTime(version)}`} question=${async () => `${shownName(path)} gets this content as its next version. Nothing is lost: the present content stays a version.`}
              run=${async () => {
                const said = await call('restore', { account, path, version: version.name });
                await load();
                return said;
              }} />`
            }
            <${ActionButton} label="Save as…" title=${`version of ${versionTime(version)}`} run=${async () => {
              saveAs(nameOf(path), await bytes('version', { account, path, version: version.name }));
              return null;
            }} />
          </span>
          ${compared?.version === version.name ? compared.view : null}</li>`;
      })}</ol>`
    }`;
}

/** JPEG comes in the scaled form of the service, which scales no other type; of the others only small ones are fetched. */
function VersionPicture(props: {
  readonly account: string;
  readonly path: string;
  readonly version: FileVersion;
}): View {
  const { account, path, version } = props;
  const type = pictureTypeOf(path);
  const isScaled = type === 'image/jpeg';
  if (type === null || (!isScaled && version.sizeBytes > WHOLE_BYTES_MAX)) return null;
  const read = (): Promise<Blob> => bytes(isScaled ? 'picture' : 'version', { account, path, version: version.name });
  return html`<${Picture} alt=${`Version of ${versionTime(version)}`} type=${type} read=${read} />`;
}

function versionTime({ name, savedMs }: FileVersion): string {
  return savedMs === null ? name : localTime(savedMs);
}

function LinkLine(props: {
  readonly account: string;
  readonly path: string;
  readonly file: FileView;
  readonly load: () => Promise<boolean>;
}): View {
  const { account, path, file, load } = props;
  const set = (on: boolean) => async () => {
    await call('link', { account, path, on });
    await load();
    return on ? 'anyone with the link can read the file and its later versions' : 'the public link is removed';
  };
  if (file.link === null)
    return html`<p>No public link. <${ActionButton} label="Create a link" title=${path} run=${set(true)} /></p>`;
  const isWeb = /^https?:\/\//.test(file.link);
  return html`<p>Public link: ${isWeb ? html`<a class="name" href=${file.link} rel="noreferrer noopener" target="_blank">${file.link}</a>` : shownName(file.link)}
    ${' '}<${ActionButton} label="Remove the link" title=${path} run=${set(false)} /></p>`;
}
