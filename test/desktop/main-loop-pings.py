"""Asks the main loop of Nautilus for a reply every 20 ms (org.gtk.Actions.List), whether it has replied to the questions before or not. For each
line on its standard input it prints a JSON line: the milliseconds of all replies since the line before, and how many questions failed."""
import json
import sys

from gi.repository import Gio, GLib

EVERY_MS = 20
NAUTILUS = ("org.gnome.Nautilus", "/org/gnome/Nautilus", "org.gtk.Actions", "List", None, GLib.VariantType("(as)"))
FAILED_AFTER_MS = 60_000
taken = []
failed = 0


def ask():
    def replied(_bus, result):
        global failed
        try:
            bus.call_finish(result)
            taken.append(round((GLib.get_monotonic_time() - begun) / 1000, 1))
        except GLib.Error:
            failed += 1

    begun = GLib.get_monotonic_time()
    # Nothing starts it: a question to a file manager that has crashed fails.
    bus.call(*NAUTILUS, Gio.DBusCallFlags.NO_AUTO_START, FAILED_AFTER_MS, None, replied)
    return True


def on_line(source, _condition):
    global failed
    if source.readline() == "":
        loop.quit()
        return False
    print(json.dumps({"ms": taken, "failed": failed}), flush=True)
    taken.clear()
    failed = 0
    return True


bus = Gio.bus_get_sync(Gio.BusType.SESSION)
loop = GLib.MainLoop()
GLib.timeout_add(EVERY_MS, ask)
GLib.io_add_watch(sys.stdin, GLib.IO_IN | GLib.IO_HUP, on_line)
loop.run()
