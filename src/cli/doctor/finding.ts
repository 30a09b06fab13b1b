import type { ExitReason } from '../exit-codes.ts';

/** What `cfs doctor` looks at, in this order: what is broken first explains what follows. */
export const AREAS = ['fuse', 'configuration', 'account', 'service', 'store', 'disk', 'mount'] as const;
export type Area = (typeof AREAS)[number];

/** One thing that can be wrong. `{}` in the cure stands for the path that is concerned. */
export interface FindingKind {
  readonly area: Area;
  /** A problem keeps something from working, a warning does not (yet). */
  readonly severity: 'problem' | 'warning';
  /** The exit code: that of the command which the problem would keep from working. */
  readonly exit: ExitReason;
  /** What a person sees without the doctor. */
  readonly symptom: string;
  readonly cause: string;
  readonly cure: string;
}

/**
 * THE table of everything that `cfs doctor` can find. The table in docs/troubleshooting.md is made from it, and a test
 * injects each of them. A new finding is one row here and the check that gives it.
 */
export const FINDINGS = {
  'addon-missing': problem('fuse', 'noFuse', {
    symptom: '`the kernel addon is not built`',
    cause: 'the part in C is missing, or was built for another machine',
    cure: 'node scripts/build-native.mjs, in the folder of the clone or of the installed package; it needs a C compiler',
  }),
  'glibc-too-old': problem('fuse', 'noFuse', {
    symptom: "`glibc 2.34 or later is needed`, or *version `GLIBC_2.34' not found*",
    cause: "this system's C library is older than the programs ask for, or is another one (musl)",
    cure: 'use a system with glibc 2.34 or later: Debian 12, Ubuntu 22.04, RHEL 9',
  }),
  architecture: problem('fuse', 'noFuse', {
    symptom: '`processors of the kind … are not supported`',
    cause: 'there are builds for x86-64 and arm64 alone',
    cure: 'use an x86-64 or arm64 machine, and a 64-bit Node',
  }),
  'mount-helper-hidden': warning('fuse', 'usage', {
    symptom: '`mount` of a line in fstab ends with *cfs-mount: not found* (127)',
    cause: 'mount(8) looks for cfs-mount in /usr/local/bin, /usr/bin and their like only, whatever PATH says',
    cure: 'ln -s "$(command -v cfs-mount)" /usr/local/bin/, as root',
  }),
  'fuse-module': problem('fuse', 'noFuse', {
    symptom: '`there is no /dev/fuse here`',
    cause: 'the kernel module is not loaded',
    cure: 'modprobe fuse, as root',
  }),
  'fuse-device': problem('fuse', 'noFuse', {
    symptom: '`there is no /dev/fuse here`, in a container',
    cause: 'the container was not given the device',
    cure: 'start the container with --device /dev/fuse --cap-add SYS_ADMIN',
  }),
  'fuse-device-refused': problem('fuse', 'noFuse', {
    symptom: '`/dev/fuse cannot be opened`',
    cause: 'the device is for root or a group alone, or the container may not use it',
    cure: 'chmod 666 {} as root (udev does so on Debian), or let the container use the device',
  }),
  'fusermount-missing': problem('fuse', 'noFuse', {
    symptom: '`fusermount3 is not installed`',
    cause: "Debian's package `fuse3` is missing",
    cure: 'apt-get install fuse3, as root',
  }),
  'fusermount-setuid': problem('fuse', 'noFuse', {
    symptom: '`could not mount`: *Operation not permitted*',
    cause: 'fusermount3 lost its setuid bit, or does not belong to root: ordinary users cannot mount',
    cure: 'chown root:root {} && chmod 4755 {}, as root; or apt-get install --reinstall fuse3',
  }),
  'fusermount-refused': problem('fuse', 'noFuse', {
    symptom: '`fusermount3 may not be run by this user`',
    cause: 'fusermount3 is for the members of a group (mode 4750, group `fuse` on some systems), and this user is none',
    cure: 'usermod -aG GROUP USER, as root, then sign in to this machine again',
  }),
  'mtab-missing': problem('fuse', 'failure', {
    symptom: '`could not unmount`: *failed to open /etc/mtab*',
    cause:
      'fusermount3 mounts for ordinary users without that file, and does not unmount: usual in containers and chroots',
    cure: 'ln -s /proc/self/mounts {}, as root',
  }),
  'allow-other': problem('fuse', 'noFuse', {
    symptom: '`could not mount`: *option allow_other only allowed if user_allow_other is set*',
    cause: '`--allow-other` is set, and this system lets only root do so',
    cure: 'put the line user_allow_other into {}, as root, or do without --allow-other',
  }),
  'configuration-unreadable': problem('configuration', 'usage', {
    symptom: '`… cannot be read (EACCES)`, or `EISDIR`, with the path of config.toml',
    cause: 'config.toml is there and cannot be read',
    cure: 'make {} a file that you may read, or remove it',
  }),
  'configuration-mistake': problem('configuration', 'usage', {
    symptom: '`there is no such option`, or a value that is none',
    cause: 'a mistake in config.toml or in the environment (CFS_…); all of them are named, each with its place',
    cure: 'correct it at the place that is named: cfs-mount --help lists options and values',
  }),
  'variable-unknown': warning('configuration', 'usage', {
    symptom: 'an option in the environment has no effect: `there is no such variable`',
    cause: 'a variable whose name begins with CFS_ and that no program here reads, perhaps misspelt',
    cure: 'correct or unset it: cfs-mount --help names the variable of each option',
  }),
  'not-signed-in': problem('account', 'signIn', {
    symptom: '`not signed in`',
    cause: 'this user is not signed in on this machine',
    cure: 'cfs login URL',
  }),
  'account-damaged': problem('account', 'signIn', {
    symptom: '`not signed in`, although you were',
    cause: 'account.json is empty, damaged or unreadable',
    cure: 'cfs login URL again: the store beside it is kept and used',
  }),
  'account-exposed': problem('account', 'signIn', {
    symptom: 'none',
    cause: 'other users of this machine may read the keys and the refresh token',
    cure: 'chmod 600 {}; if others use this machine, revoke the keys and cfs login again',
  }),
  'certificate-file': problem('service', 'usage', {
    symptom: '`SSL_CERT_FILE names …, which cannot be read`; NODE_EXTRA_CA_CERTS likewise',
    cause: 'the variable names a file that is missing or holds no certificates',
    cure: 'correct or unset the variable',
  }),
  'proxy-address': problem('service', 'usage', {
    symptom: '`HTTPS_PROXY: not the address of a proxy`, or another variable',
    cause: 'the variable that names the proxy holds something else than an address',
    cure: 'correct or unset the variable, or name the proxy: --proxy http://HOST:PORT; --proxy none does without',
  }),
  'proxy-failed': problem('service', 'unreachable', {
    symptom: '`the proxy … cannot be reached`, `refuses the connection` or `wants a user name and password`',
    cause: 'the proxy, not the service: it is away, silent, refuses the service, or wants another sign-in',
    cure: 'compare the address with what your network wants; --proxy none or NO_PROXY do without; after HTTPS_PROXY=http://USER:PASSWORD@HOST:PORT cfs login URL the sign-in is kept',
  }),
  'service-insecure': problem('service', 'usage', {
    symptom: '`… would get the password in the clear`',
    cause: 'the address is http:// on another machine',
    cure: 'cfs login with the https:// address; --insecure where the line between is trusted',
  }),
  'dns-failed': problem('service', 'unreachable', {
    symptom: '`cannot be reached: … ENOTFOUND` or `EAI_AGAIN`',
    cause: 'the name of the service is not known: no network, a wrong address, or a name server that is away',
    cure: 'look at the network and /etc/resolv.conf; files that are on this machine stay usable',
  }),
  'dns-silent': problem('service', 'unreachable', {
    symptom: 'everything that is not here yet takes half a minute and fails',
    cause: 'the name server does not answer',
    cure: 'put a name server that answers first in /etc/resolv.conf',
  }),
  'service-not-running': warning('service', 'unreachable', {
    symptom: '`ECONNREFUSED 127.0.0.1`',
    cause: "nothing listens there: that of `npm start` runs only with it, one's own is not started",
    cure: 'npm start, or cfs serve',
  }),
  'service-refused': problem('service', 'unreachable', {
    symptom: '`cannot be reached: … ECONNREFUSED` or `EHOSTUNREACH`',
    cause: 'no way to that machine, nothing listens on that port, or a firewall or proxy is between',
    cure: 'look at the network; where it wants a proxy: --proxy, or HTTPS_PROXY and NO_PROXY',
  }),
  'service-silent': problem('service', 'unreachable', {
    symptom: 'programs get *Connection timed out* for what is not here yet',
    cause: 'the service takes the connection and does not answer, or a firewall swallows it',
    cure: 'wait, or ask the operator of the service; files that are on this machine stay usable',
  }),
  'service-out-of-order': problem('service', 'unreachable', {
    symptom: '`… is out of order (status 503)`',
    cause: 'the service answers every request with a failure of its own',
    cure: 'wait: what is pending is kept and pushed when it works again',
  }),
  'service-foreign': problem('service', 'unreachable', {
    symptom: '`answers, but not as the service does`',
    cause: 'a wrong address, or a login page of a hotel or company network answers instead',
    cure: 'open a web page to see whether the network wants a login; compare the address',
  }),
  'tls-expired': problem('service', 'unreachable', {
    symptom: '`no trusted connection: certificate has expired`',
    cause: "the service's certificate is past its date, or this machine's clock is ahead",
    cure: 'look at the clock (date); otherwise whoever runs the service has to renew the certificate',
  }),
  'tls-not-yet-valid': problem('service', 'unreachable', {
    symptom: '`no trusted connection: certificate is not yet valid`',
    cause: "this machine's clock is behind, or the certificate was made for later",
    cure: 'set the clock (timedatectl set-ntp true)',
  }),
  'tls-wrong-host': problem('service', 'unreachable', {
    symptom: "`no trusted connection: Hostname/IP does not match certificate's altnames`",
    cause: 'the certificate is for another name: a wrong address, or somebody in between',
    cure: 'cfs login with the name that stands in the certificate; if it was right before, do not go on',
  }),
  'tls-unknown-authority': problem('service', 'unreachable', {
    symptom: '`no trusted connection: unable to verify the first certificate` or `self-signed certificate`',
    cause: 'the certificate comes from an authority that this system does not believe',
    cure: 'install the authority in the system, or name its PEM file in SSL_CERT_FILE',
  }),
  'tls-broken': problem('service', 'unreachable', {
    symptom: '`no trusted connection`, `wrong version number` or `EPROTO`',
    cause: 'what answers there does not speak TLS, or none that this machine accepts',
    cure: 'compare scheme and port of the address; a proxy may be in between',
  }),
  'sign-in-refused': problem('service', 'signIn', {
    symptom: '`the service refuses the saved sign-in`',
    cause: 'the refresh token was revoked, or the keys or the application are not good any more',
    cure: 'cfs login URL again: what is pending is kept and pushed after it',
  }),
  'token-refused': problem('service', 'signIn', {
    symptom: 'programs get *Input/output error*, and a sign-in works',
    cause: 'the service gives a token and then does not take it: the account may be closed or locked',
    cure: 'look at the account in a browser; then cfs login URL again',
  }),
  'clock-skew': warning('service', 'ok', {
    symptom: 'versions and conflict copies have odd dates',
    cause: "this machine's clock differs from the service's by more than a minute",
    cure: 'timedatectl set-ntp true',
  }),
  'store-exposed': problem('store', 'store', {
    symptom: 'none',
    cause: 'other users of this machine may read what is kept of your files',
    cure: 'chmod 700 {}',
  }),
  'store-foreign': problem('store', 'store', {
    symptom: '`EACCES` at the start, after a start as root',
    cause: 'the store belongs to another user of this machine: cfs-mount ran under sudo once',
    cure: 'chown -R "$USER" {}, as root',
  }),
  'store-read-only': problem('store', 'store', {
    symptom: '`EROFS`, `EACCES` or `ENOTDIR` at the start',
    cause: 'nothing can be written where the store lies',
    cure: 'make {} a directory that you may write, on a disk that is mounted for writing',
  }),
  'store-in-use': problem('store', 'alreadyMounted', {
    symptom: '`the store in … is in use by process N`',
    cause: 'another process has it open: a mount that is ending or hangs, or a second one under other XDG directories',
    cure: 'wait a moment; then end that process (kill N), and mount again',
  }),
  'store-mounted': problem('store', 'alreadyMounted', {
    symptom: 'none',
    cause: '`cfs doctor --store` reads every byte of the store, and a running mount has it open',
    cure: 'cfs umount {} first, or leave out --store',
  }),
  'store-newer': problem('store', 'store', {
    symptom: '`the store was written by a newer version of this program`',
    cause: 'an older version was installed over a newer one',
    cure: 'install the newer version again',
  }),
  'store-unopened': problem('store', 'store', {
    symptom: '`cannot be opened: ENOSPC`, or another word of the system, at the start',
    cause: 'the system refused a file of the store: a full disk, too few descriptors, a missing permission',
    cure: 'remove the cause that is named and start again; keep {}: nothing in it is damaged',
  }),
  'store-damaged': problem('store', 'store', {
    symptom: '*Input/output error*, or a mount that does not start',
    cause: 'the disk gave other bytes than were written, or somebody changed files in the store',
    cure: 'copy {} away, look at the disk (dmesg), and remove it: all but what was pending is fetched again',
  }),
  'changes-waiting': warning('store', 'pending', {
    symptom: 'none',
    cause: 'changes that the service does not have are in a store that is not mounted: nothing pushes them meanwhile',
    cure: 'mount that root and cfs sync --wait, or copy them out: cfs export DIR',
  }),
  'disk-full': problem('disk', 'store', {
    symptom: 'programs get *No space left on device* (ENOSPC)',
    cause: "this machine's disk is full: nothing can be saved",
    cure: 'free space on the disk of {}; --cache-size bounds what is kept of files that the service has',
  }),
  'disk-below-reserve': warning('disk', 'store', {
    symptom: 'what was read is fetched again each time',
    cause: 'less is free than `--cache-reserve` leaves alone: nothing more is kept of what is read',
    cure: 'free space on the disk of {}, or lower --cache-reserve',
  }),
  'mount-dead': problem('mount', 'notMounted', {
    symptom: '*Transport endpoint is not connected*',
    cause: 'the mounting process was killed; the directory is a dead mount',
    cure: 'cfs-mount {} takes it away and mounts again; cfs umount {} only takes it away',
  }),
  'mount-hangs': problem('mount', 'failure', {
    symptom: 'programs hang in the mount',
    cause: 'the process of the mount does not answer the kernel: it is stopped, or a defect',
    cure: 'kill -9 its process (cli/mount.js in ps(1)) frees everybody; nothing that was closed is lost; cfs-mount {} mounts again',
  }),
  'mount-silent': problem('mount', 'failure', {
    symptom: '`cfs status` says that the mount does not answer',
    cause: 'the process of the mount is there and stopped, overloaded, or a defect',
    cure: 'cfs status names the process and its log: look there, kill -9 it, and mount again; nothing that was closed is lost',
  }),
  'mount-offline': warning('mount', 'unreachable', {
    symptom: '`offline since …` in `cfs status`',
    cause: 'the mount has not heard from the service',
    cure: 'nothing, where the network is away: changes are kept and pushed later',
  }),
  'mount-signed-out': problem('mount', 'signIn', {
    symptom: '`sign in again` in `cfs status`',
    cause: 'the service refused the saved sign-in while it was mounted',
    cure: 'cfs login URL: the mount goes on by itself',
  }),
  'changes-parked': problem('mount', 'parked', {
    symptom: '`parked` in `cfs status`',
    cause: 'retrying cannot help: the reason stands beside each change',
    cure: 'cfs status, remove the reason, cfs retry',
  }),
  'socket-stale': warning('mount', 'ok', {
    symptom: 'none',
    cause: 'a mount was killed and left its control socket',
    cure: 'nothing: the next start replaces it (rm {} does too)',
  }),
  'socket-exposed': problem('mount', 'failure', {
    symptom: 'none',
    cause: 'other users may reach the control socket of your mount: who may open it may end the mount',
    cure: 'chmod 700 {}',
  }),
  'socket-foreign': problem('mount', 'failure', {
    symptom: '`the directory of the control socket … cannot be used`',
    cause: 'the directory of the control socket belongs to another user, or is none',
    cure: 'remove {}, as root',
  }),
} as const satisfies Record<string, FindingKind>;

export type FindingName = keyof typeof FINDINGS;

/** Something that is wrong, here and now. */
export interface Finding {
  readonly name: FindingName;
  /** One sentence without a full stop: what, and of what. */
  readonly what: string;
  readonly cure: string;
}

/** @param path what `{}` in the cure stands for */
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
