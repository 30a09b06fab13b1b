import type { ExitReason } from '../../mount/exit-codes.ts';

/** The areas that `cfs doctor` checks, in this order: an early problem often explains later ones. */
export const AREAS = ['fuse', 'configuration', 'account', 'service', 'store', 'disk', 'mount'] as const;
export type Area = (typeof AREAS)[number];

/** One kind of finding. `{}` in the cure stands for the affected path. */
export interface FindingKind {
  readonly area: Area;
  /** A problem stops something from working; a warning does not, or not yet. */
  readonly severity: 'problem' | 'warning';
  /** The exit code: that of the command that the problem breaks. */
  readonly exit: ExitReason;
  /** The symptom without `cfs doctor`. */
  readonly symptom: string;
  readonly cause: string;
  readonly cure: string;
}

/**
 * The table of all findings of `cfs doctor`. The table in docs/troubleshooting.md is generated from it, and a test
 * injects each one. A new finding is one row here and the check that yields it.
 */
export const FINDINGS = {
  'addon-missing': problem('fuse', 'noFuse', {
    symptom: '`the kernel addon is not built`',
    cause: 'the addon written in C is missing, or was built for another machine',
    cure: 'in a clone run node scripts/build-native.mjs, which needs a C compiler; otherwise install the package again',
  }),
  'glibc-too-old': problem('fuse', 'noFuse', {
    symptom: "`glibc 2.34 or later is needed`, or *version `GLIBC_2.34' not found*",
    cause: 'the C library of this system is too old, or is not glibc (musl)',
    cure: 'use a system with glibc 2.34 or later: Debian 12, Ubuntu 22.04, RHEL 9',
  }),
  architecture: problem('fuse', 'noFuse', {
    symptom: '`processors of the kind … are not supported`',
    cause: 'only x86-64 and arm64 have builds',
    cure: 'use an x86-64 or arm64 machine, and a 64-bit Node',
  }),
  'mount-helper-hidden': warning('fuse', 'usage', {
    symptom: '`mount` fails for a line in fstab with *cfs-mount: not found* (127)',
    cause:
      'mount(8) ignores PATH and looks for cfs-mount only in standard directories such as /usr/local/bin and /usr/bin',
    cure: 'as root: ln -s "$(command -v cfs-mount)" /usr/local/bin/',
  }),
  'fuse-module': problem('fuse', 'noFuse', {
    symptom: '`there is no /dev/fuse here`',
    cause: 'the kernel module is not loaded',
    cure: 'as root: modprobe fuse',
  }),
  'fuse-device': problem('fuse', 'noFuse', {
    symptom: '`there is no /dev/fuse here`, in a container',
    cause: 'the container does not have the device',
    cure: 'start the container with --device /dev/fuse --cap-add SYS_ADMIN',
  }),
  'fuse-device-refused': problem('fuse', 'noFuse', {
    symptom: '`/dev/fuse cannot be opened`',
    cause: 'only root or a group may open the device, or the container has no permission for it',
    cure: 'as root: chmod 666 {} (udev does so on Debian), or allow the container to use the device',
  }),
  'fusermount-missing': problem('fuse', 'noFuse', {
    symptom: '`fusermount3 is not installed`',
    cause: 'the package `fuse3` is not installed',
    cure: 'as root: apt-get install fuse3',
  }),
  'fusermount-setuid': problem('fuse', 'noFuse', {
    symptom: '`could not mount`: *Operation not permitted*',
    cause: 'fusermount3 is not setuid root, so ordinary users cannot mount',
    cure: 'as root: chown root:root {} && chmod 4755 {}; or apt-get install --reinstall fuse3',
  }),
  'fusermount-refused': problem('fuse', 'noFuse', {
    symptom: '`fusermount3 may not be run by this user`',
    cause:
      'only members of a group may run fusermount3 (mode 4750, group `fuse` on some systems), and this user is not a member',
    cure: 'as root: usermod -aG GROUP USER; then log in to this machine again',
  }),
  'mtab-missing': problem('fuse', 'failure', {
    symptom: '`could not unmount`: *failed to open /etc/mtab*',
    cause:
      'without that file fusermount3 can mount but not unmount for ordinary users; common in containers and chroots',
    cure: 'as root: ln -s /proc/self/mounts {}',
  }),
  'allow-other': problem('fuse', 'noFuse', {
    symptom: '`could not mount`: *option allow_other only allowed if user_allow_other is set*',
    cause: '`--allow-other` is set, but this system allows it only for root',
    cure: 'as root: add the line user_allow_other to {}; or drop --allow-other',
  }),
  'fuse-request-timeout': warning('fuse', 'noFuse', {
    symptom: '*Transport endpoint is not connected* while a large file is fetched or the disk is slow',
    cause:
      'the system limits how long a FUSE mount may take for one request (Linux 6.15 or later), and the kernel aborts the whole mount after that time',
    cure: 'as root: sysctl fs.fuse.default_request_timeout=0 fs.fuse.max_request_timeout=0; then unmount and mount again',
  }),
  'continuity-kernel': warning('fuse', 'failure', {
    symptom: 'with `--continuity` on Linux before 6.9: no call continues while 1,024 calls wait for the service',
    cause:
      'the kernel cannot send calls again that a dead process had received (FUSE_NOTIFY_RESEND): the mount keeps each one until it is answered',
    cure: 'none is needed; Linux 6.9 or later has no such limit',
  }),
  'continuity-keeper': problem('fuse', 'usage', {
    symptom: '`this package has no keeper for --continuity`',
    cause: '`--continuity` is set, and the program that keeps the mount over a death was not built',
    cure: 'in a clone run node scripts/build-native.mjs, which needs a C compiler; or drop --continuity',
  }),
  'configuration-unreadable': problem('configuration', 'usage', {
    symptom: '`… cannot be read (EACCES)`, or `EISDIR`, with the path of config.toml',
    cause: 'config.toml exists but cannot be read',
    cure: 'make {} a file that you can read, or remove it',
  }),
  'configuration-mistake': problem('configuration', 'usage', {
    symptom: '`there is no such option`, or an invalid value',
    cause: 'a mistake in config.toml or in the environment (CFS_…); the report lists each mistake with its place',
    cure: 'correct it at the place shown; cfs-mount --help lists options and values',
  }),
  'variable-unknown': warning('configuration', 'usage', {
    symptom: 'an option in the environment has no effect: `there is no such variable`',
    cause: 'no program here reads this CFS_… variable; its name may be misspelt',
    cure: 'correct or unset it; cfs-mount --help lists the variable of each option',
  }),
  'not-signed-in': problem('account', 'signIn', {
    symptom: '`not signed in`',
    cause: 'this user is not signed in on this machine',
    cure: 'run: cfs login URL',
  }),
  'account-damaged': problem('account', 'signIn', {
    symptom: '`not signed in`, although you were',
    cause: 'account.json is empty, damaged or unreadable',
    cure: 'run cfs login URL again; the local store is kept and used',
  }),
  'account-exposed': problem('account', 'signIn', {
    symptom: 'none',
    cause: 'other users of this machine can read the keys and the refresh token',
    cure: 'run: chmod 600 {}; if others use this machine, revoke the keys and run cfs login again',
  }),
  'certificate-file': problem('service', 'usage', {
    symptom: '`SSL_CERT_FILE names …, which cannot be read`; NODE_EXTRA_CA_CERTS likewise',
    cause: 'the variable names a file that is missing or holds no certificates',
    cure: 'correct or unset the variable',
  }),
  'proxy-address': problem('service', 'usage', {
    symptom: '`HTTPS_PROXY: not the address of a proxy`, or another variable',
    cause: 'the variable for the proxy does not hold an address',
    cure: 'correct or unset the variable, or set --proxy http://HOST:PORT; --proxy none connects directly',
  }),
  'proxy-failed': problem('service', 'unreachable', {
    symptom: '`the proxy … cannot be reached`, `refuses the connection` or `wants a user name and password`',
    cause: 'the proxy is down, does not answer, refuses the connection, or requires other credentials',
    cure: 'check the proxy address of your network; --proxy none or NO_PROXY connect directly; HTTPS_PROXY=http://USER:PASSWORD@HOST:PORT cfs login URL saves the credentials',
  }),
  'service-insecure': problem('service', 'usage', {
    symptom: '`… would get the password in the clear`',
    cause: 'the address is http:// on another machine',
    cure: 'run cfs login with the https:// address; use --insecure only over a trusted network',
  }),
  'dns-failed': problem('service', 'unreachable', {
    symptom: '`cannot be reached: … ENOTFOUND` or `EAI_AGAIN`',
    cause:
      'the host name of the service does not resolve: no network, a wrong address, or the name server is unreachable',
    cure: 'check the network and /etc/resolv.conf; files on this machine stay usable',
  }),
  'dns-silent': problem('service', 'unreachable', {
    symptom: 'access to files that are not on this machine fails after half a minute',
    cause: 'the name server does not answer',
    cure: 'put a working name server first in /etc/resolv.conf',
  }),
  'service-not-running': warning('service', 'unreachable', {
    symptom: '`ECONNREFUSED 127.0.0.1`',
    cause: 'no local service listens at that address; the one of `npm start` runs only with it',
    cure: 'run: npm start, or cfs serve',
  }),
  'service-refused': problem('service', 'unreachable', {
    symptom: '`cannot be reached: … ECONNREFUSED` or `EHOSTUNREACH`',
    cause: 'no route to the machine, no listener on the port, or a firewall or proxy in between',
    cure: 'check the network; if it requires a proxy, set --proxy, or HTTPS_PROXY and NO_PROXY',
  }),
  'service-silent': problem('service', 'unreachable', {
    symptom: 'programs get *Connection timed out* for files that are not on this machine',
    cause: 'the service accepts the connection but does not answer, or a firewall drops it',
    cure: 'wait, or ask the operator of the service; files on this machine stay usable',
  }),
  'service-out-of-order': problem('service', 'unreachable', {
    symptom: '`… is out of order (status 503)`',
    cause: 'the service answers every request with a server error',
    cure: 'wait; pending changes are kept and pushed when the service works again',
  }),
  'service-foreign': problem('service', 'unreachable', {
    symptom: '`answers, but not as the service does`',
    cause: 'a wrong address, or a login page of a hotel or company network answers instead',
    cure: 'open a web page to see whether the network requires a login; check the address',
  }),
  'tls-expired': problem('service', 'unreachable', {
    symptom: '`no trusted connection: certificate has expired`',
    cause: 'the certificate of the service has expired, or the clock of this machine is ahead',
    cure: 'check the clock (date); if it is right, the operator of the service must renew the certificate',
  }),
  'tls-not-yet-valid': problem('service', 'unreachable', {
    symptom: '`no trusted connection: certificate is not yet valid`',
    cause: 'the clock of this machine is behind, or the certificate is not valid yet',
    cure: 'set the clock: timedatectl set-ntp true',
  }),
  'tls-wrong-host': problem('service', 'unreachable', {
    symptom: "`no trusted connection: Hostname/IP does not match certificate's altnames`",
    cause: 'the certificate is for another host name: the address is wrong, or the connection is intercepted',
    cure: 'run cfs login with the host name of the certificate; if the address worked before, do not continue',
  }),
  'tls-unknown-authority': problem('service', 'unreachable', {
    symptom: '`no trusted connection: unable to verify the first certificate` or `self-signed certificate`',
    cause: 'this system does not trust the authority that issued the certificate',
    cure: 'install the authority in the system, or set SSL_CERT_FILE to its PEM file',
  }),
  'tls-broken': problem('service', 'unreachable', {
    symptom: '`no trusted connection`, `wrong version number` or `EPROTO`',
    cause: 'the server does not speak TLS, or only versions that this machine rejects',
    cure: 'check the scheme and port of the address; a proxy may be in between',
  }),
  'sign-in-refused': problem('service', 'signIn', {
    symptom: '`the service refuses the saved sign-in`',
    cause: 'the refresh token was revoked, or the keys or the application are no longer valid',
    cure: 'run cfs login URL again; pending changes are kept and pushed afterwards',
  }),
  'token-refused': problem('service', 'signIn', {
    symptom: 'programs get *Input/output error*, but signing in works',
    cause: 'the service issues a token and then rejects it; the account may be closed or locked',
    cure: 'check the account in a browser; then run cfs login URL again',
  }),
  'clock-skew': warning('service', 'ok', {
    symptom: 'versions and conflicted copies have wrong dates',
    cause: 'the clock of this machine differs from that of the service by more than a minute',
    cure: 'run: timedatectl set-ntp true',
  }),
  'store-exposed': problem('store', 'store', {
    symptom: 'none',
    cause: 'other users of this machine can read the local copies of your files',
    cure: 'run: chmod 700 {}',
  }),
  'store-foreign': problem('store', 'store', {
    symptom: '`EACCES` at the start, after a start as root',
    cause: 'the store belongs to another user of this machine; cfs-mount may have run under sudo',
    cure: 'run: sudo chown -R "$USER" {}',
  }),
  'store-read-only': problem('store', 'store', {
    symptom: '`EROFS`, `EACCES` or `ENOTDIR` at the start',
    cause: 'the directory of the store is not writable',
    cure: 'make {} a directory that you can write to, on a disk that is mounted read-write',
  }),
  'store-in-use': problem('store', 'alreadyMounted', {
    symptom: '`the store in … is in use by process N`',
    cause:
      'another process has the store open: a mount that is ending or hangs, or a second mount with other XDG directories',
    cure: 'wait a moment; then end that process (kill N) and mount again',
  }),
  'store-mounted': problem('store', 'alreadyMounted', {
    symptom: 'none',
    cause: '`cfs doctor --store` needs the whole store, but a running mount has it open',
    cure: 'run cfs umount {} first, or leave out --store',
  }),
  'store-newer': problem('store', 'store', {
    symptom: '`the store was written by a newer version of this program`',
    cause: 'an older version was installed over a newer one',
    cure: 'install the newer version again',
  }),
  'store-unopened': problem('store', 'store', {
    symptom: '`cannot be opened: ENOSPC`, or another system error, at the start',
    cause: 'the system refused access to a file of the store: full disk, too few descriptors or missing permission',
    cure: 'remove the cause shown and start again; keep {}: nothing in it is damaged',
  }),
  'store-damaged': problem('store', 'store', {
    symptom: '*Input/output error*, or a mount that does not start',
    cause: 'the disk returned other bytes than were written, or files in the store were changed from outside',
    cure: 'copy {} elsewhere, check the disk (dmesg), then remove {}; everything except pending changes is fetched again',
  }),
  'changes-waiting': warning('store', 'pending', {
    symptom: 'none',
    cause: 'unpushed changes are in a store that is not mounted, so nothing pushes them',
    cure: 'mount that root and run cfs sync --wait, or copy the changes out: cfs export DIR',
  }),
  'disk-full': problem('disk', 'store', {
    symptom: 'programs get *No space left on device* (ENOSPC)',
    cause: 'the disk of this machine is full; nothing can be saved',
    cure: 'free space on the disk of {}; --cache-size limits the local copies of files that the service has',
  }),
  'disk-below-reserve': warning('disk', 'store', {
    symptom: 'every read of a file fetches it again',
    cause: 'free space is below `--cache-reserve`, so reads are not cached',
    cure: 'free space on the disk of {}, or lower --cache-reserve',
  }),
  'mount-dead': problem('mount', 'notMounted', {
    symptom: '*Transport endpoint is not connected*',
    cause: 'the mounting process was killed and left a dead mount',
    cure: 'run cfs-mount {} to mount again, or cfs umount {} to remove the dead mount',
  }),
  'mount-hangs': problem('mount', 'failure', {
    symptom: 'programs hang in the mount',
    cause: 'the process of the mount does not answer the kernel: it is stopped, or this is a defect',
    cure: 'kill -9 its process (mounting-process.cjs in ps(1)) to free the programs, then run cfs-mount {}; no closed file is lost',
  }),
  'mount-silent': problem('mount', 'failure', {
    symptom: '`cfs status` says that the mount does not answer',
    cause: 'the process of the mount is stopped or overloaded, or this is a defect',
    cure: 'cfs status shows the process and its log: read the log, kill -9 the process and mount again; no closed file is lost',
  }),
  'mount-offline': warning('mount', 'unreachable', {
    symptom: '`offline since …` in `cfs status`',
    cause: 'the mount cannot reach the service',
    cure: 'check the network; changes are kept and pushed when the service is reachable',
  }),
  'mount-signed-out': problem('mount', 'signIn', {
    symptom: '`sign in again` in `cfs status`',
    cause: 'the service rejected the saved sign-in while the account was mounted',
    cure: 'run cfs login URL; the mount resumes automatically',
  }),
  'changes-parked': problem('mount', 'parked', {
    symptom: '`parked` in `cfs status`',
    cause: 'the service rejected a change, and an automatic retry cannot help',
    cure: 'run cfs status, fix the reason that it shows, then run cfs retry',
  }),
  'socket-stale': warning('mount', 'ok', {
    symptom: 'none',
    cause: 'a killed mount left its control socket behind',
    cure: 'nothing to do: the next mount replaces it (or run: rm {})',
  }),
  'socket-exposed': problem('mount', 'failure', {
    symptom: 'none',
    cause: 'other users can open the control socket of your mount and end the mount',
    cure: 'run: chmod 700 {}',
  }),
  'socket-foreign': problem('mount', 'failure', {
    symptom: '`the directory of the control socket … cannot be used`',
    cause: 'the directory of the control socket belongs to another user, or is not a directory',
    cure: 'as root: remove {}',
  }),
} as const satisfies Record<string, FindingKind>;

export type FindingName = keyof typeof FINDINGS;

/** A finding on this machine. */
export interface Finding {
  readonly name: FindingName;
  /** One sentence without a full stop: the problem and the object. */
  readonly what: string;
  readonly cure: string;
}

/** @param path replaces `{}` in the cure */
export function finding(name: FindingName, what: string, path = ''): Finding {
  return { name, what, cure: FINDINGS[name].cure.replaceAll('{}', path) };
}

/** All kinds as rows, in the order of the table. */
export function findingKinds(): readonly (readonly [FindingName, FindingKind])[] {
  return Object.entries(FINDINGS) as unknown as readonly (readonly [FindingName, FindingKind])[];
}

interface Words {
  readonly symptom: string;
  readonly cause: string;
  readonly cure: string;
}

function problem(area: Area, exit: ExitReason, words: Words): FindingKind {
  return { area, severity: 'problem', exit, ...words };
}

function warning(area: Area, exit: ExitReason, words: Words): FindingKind {
  return { area, severity: 'warning', exit, ...words };
}
