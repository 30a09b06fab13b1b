/** Absolute: the sandbox of a desktop has `/usr`, and neither the home directory nor a socket. */
export const PERL = '/usr/bin/perl';

/**
 * Reads the attribute and lets the thumbnailer of the system scale it; without the attribute that thumbnailer gets the file itself. Arguments:
 * URI, path and output, then that thumbnailer with the same values among its arguments. 191 and 8 are getxattr(2) on
 * x86-64 and arm64, 110 is ETIMEDOUT (a read of the file would wait in vain, too), 193 is O_WRONLY | O_CREAT | O_EXCL.
 *
 * It contains no `%`, `'` or `\`, which have a meaning in an entry.
 */
const SCRIPT = [
  'use Config; my ($uri, $in, $out, @other) = @ARGV; my $arch = $Config{archname};',
  'my $call = $arch =~ /^x86_64/ ? 191 : $arch =~ /^aarch64/ ? 8 : 0; my $room = chr(0) x 65536;',
  'my $name = "user.cfs.thumbnail";',
  'my $size = $call ? syscall($call, $in, $name, $room, 65536) : -1;',
  'exit 1 if $size < 0 && $! == 110;',
  'if ($size <= 0) { exec { $other[0] } @other if @other; exit 1 }',
  'my $small = @other ? "$out.cfs.jpg" : $out; unlink $small;',
  'sysopen(my $file, $small, 193, 0600) or exit 1; binmode $file;',
  'print $file substr($room, 0, $size) or exit 1; close $file or exit 1; exit 0 if !@other;',
  '(my $small_uri = $small) =~ s{([^A-Za-z0-9/._~-])}{chr(37) . uc unpack("H2", $1)}ge;',
  'my @run = map { $_ eq $uri ? "file://$small_uri" : $_ eq $in ? $small : $_ } @other;',
  'my $failed = system { $run[0] } @run; $failed ? rename $small, $out : unlink $small;',
].join(' ');

/**
 * The entry for JPEG files in the form that GNOME, Xfce and LXDE read: `Exec` is split into words as by a shell, then `%u`, `%i`, `%o` and `%s` are
 * replaced by URI, path, output and size.
 *
 * @param other `Exec` of the thumbnailer for files elsewhere; null for none
 */
export function thumbnailerEntry(other: string | null): string {
  const lines = [
    '# Made by `cfs desktop install`; `cfs desktop uninstall` removes it.',
    '[Thumbnailer Entry]',
    `TryExec=${PERL}`,
    `Exec=${PERL} -e '${SCRIPT}' %u %i %o${other === null ? '' : ` ${other}`}`,
    'MimeType=image/jpeg;',
    '',
  ];
  return lines.join('\n');
}

/** `Exec` and `TryExec` of an entry that is for JPEG files; null for another one. */
export function jpegThumbnailer(entry: string): { readonly exec: string; readonly tryExec: string | null } | null {
  const textOf = (key: string): string | null =>
    new RegExp(`^${key}[ \\t]*=[ \\t]*(.+)$`, 'm').exec(entry)?.[1] ?? null;
  const exec = textOf('Exec');
  const isForJpeg = textOf('MimeType')?.split(';').includes('image/jpeg') === true;
  return exec === null || !isForJpeg ? null : { exec: exec.trim(), tryExec: textOf('TryExec')?.trim() ?? null };
}

/**
 * The command of the thumbnailer for files elsewhere, from our own entry.
 *
 * @returns its words, in which `%u`, `%i`, `%o` and `%s` are to be replaced; null without one, or if a shell would have to split it
 */
export function otherCommand(entry: string): readonly string[] | null {
  const other = /^Exec=.* %u %i %o (.+)$/m.exec(entry)?.[1];
  return other === undefined || /["'\\]/.test(other) ? null : other.trim().split(/\s+/);
}

export const ENTRY_NAME = 'cfs-mount.thumbnailer';
