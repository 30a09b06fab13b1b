"""Asks the main loop of Nautilus for a reply every 20 ms (org.gtk.Actions.List), whether it has replied to the questions before or not. For each
line on its standard input it prints a JSON line: the milliseconds of all replies since the line before, the processor time that the main loop
needed until each (what other programs do does not count), and how many questions failed."""
import json
import sys

from gi.repository import Gio, GLib

EVERY_MS = 20
NAUTILUS = ("org.gnome.Nautilus", "/org/gnome/Nautilus", "org.gtk.Actions", "List", None, GLib.VariantType("(as)"))
FAILED_AFTER_MS = 60_000
taken = []
worked = []
failed = 0
process = None


def processor_ns():
    """Processor time of the main thread until now (proc_pid_schedstat(5)); None without one."""
    global process
    try:
        if process is None:
            name = GLib.Variant("(s)", NAUTILUS[:1])
            bus_itself = ("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus")
            asked = (*bus_itself, "GetConnectionUnixProcessID", name, None, Gio.DBusCallFlags.NONE, -1, None)
            process = bus.call_sync(*asked).unpack()[0]
        with open(f"/proc/{process}/task/{process}/schedstat", encoding="ascii") as fields:
            return int(fields.read().split()[0])
    except (GLib.Error, OSError):
        process = None
        return None


def ask():
    def replied(_bus, result):
        global failed
        try:
            bus.call_finish(result)
            taken.append(round((GLib.get_monotonic_time() - begun) / 1000, 1))
            after = processor_ns()
            if before is not None and after is not None and after >= before:
                worked.append(round((after - before) / 1e6, 1))
        except GLib.Error:
            failed += 1

    before = processor_ns()
    begun = GLib.get_monotonic_time()
    # Nothing starts it: a question to a file manager that has crashed fails.
    bus.call(*NAUTILUS, Gio.DBusCallFlags.NO_AUTO_START, FAILED_AFTER_MS, None, replied)
    return True


def on_line(source, _condition):
    global failed
    if source.readline() == "":
        loop.quit()
        return False
    print(json.dumps({"ms": taken, "processorMs": worked, "failed": failed}), flush=True)
    taken.clear()
    worked.clear()
    failed = 0
    return True


bus = Gio.bus_get_sync(Gio.BusType.SESSION)
loop = GLib.MainLoop()
GLib.timeout_add(EVERY_MS, ask)
GLib.io_add_watch(sys.stdin, GLib.IO_IN | GLib.IO_HUP, on_line)
loop.run()
