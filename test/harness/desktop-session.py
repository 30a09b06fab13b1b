"""The services of a desktop that a mount speaks to, on the session bus: notices (org.freedesktop.Notifications) and a file manager
(org.freedesktop.FileManager1). Prints a JSON line for each call; presses a button for each line `NUMBER ACTION` on its standard input.
usage: desktop-session.py CAPABILITY... (of the notices: body, actions)"""
import json
import sys

from gi.repository import Gio, GLib

INTERFACES = Gio.DBusNodeInfo.new_for_xml("""<node>
 <interface name="org.freedesktop.Notifications">
  <method name="GetCapabilities"><arg type="as" direction="out"/></method>
  <method name="GetServerInformation"><arg type="s" direction="out"/><arg type="s" direction="out"/>
   <arg type="s" direction="out"/><arg type="s" direction="out"/></method>
  <method name="CloseNotification"><arg type="u" direction="in"/></method>
  <method name="Notify"><arg type="s" direction="in"/><arg type="u" direction="in"/><arg type="s" direction="in"/>
   <arg type="s" direction="in"/><arg type="s" direction="in"/><arg type="as" direction="in"/><arg type="a{sv}" direction="in"/>
   <arg type="i" direction="in"/><arg type="u" direction="out"/></method>
  <signal name="ActionInvoked"><arg type="u"/><arg type="s"/></signal>
  <signal name="NotificationClosed"><arg type="u"/><arg type="u"/></signal>
 </interface>
 <interface name="org.freedesktop.FileManager1">
  <method name="ShowItems"><arg type="as" direction="in"/><arg type="s" direction="in"/></method>
 </interface>
</node>""")
NOTICES = "/org/freedesktop/Notifications"
shown = 0


def say(**what):
    print(json.dumps(what), flush=True)


def called(_bus, _sender, _path, interface, method, arguments, call):
    global shown
    given = arguments.unpack()
    if method == "GetCapabilities":
        call.return_value(GLib.Variant("(as)", (sys.argv[1:],)))
    elif method == "GetServerInformation":
        call.return_value(GLib.Variant("(ssss)", ("test", "cfs-mount", "1", "1.2")))
    elif method == "Notify":
        shown += 1
        say(kind="notice", number=shown, title=given[3], text=given[4], actions=dict(zip(given[5][::2], given[5][1::2])))
        call.return_value(GLib.Variant("(u)", (shown,)))
    elif method == "ShowItems":
        say(kind="files", urls=given[0])
        call.return_value(None)
    else:
        call.return_value(None)


def pressed(source, _condition):
    line = source.readline()
    if line == "":
        loop.quit()
        return False
    number, action = line.split()
    name = "org.freedesktop.Notifications"
    bus.emit_signal(None, NOTICES, name, "ActionInvoked", GLib.Variant("(us)", (int(number), action)))
    bus.emit_signal(None, NOTICES, name, "NotificationClosed", GLib.Variant("(uu)", (int(number), 2)))
    return True


bus = Gio.bus_get_sync(Gio.BusType.SESSION)
for path, interface in ((NOTICES, 0), ("/org/freedesktop/FileManager1", 1)):
    bus.register_object(path, INTERFACES.interfaces[interface], called, None, None)
    Gio.bus_own_name_on_connection(bus, INTERFACES.interfaces[interface].name, Gio.BusNameOwnerFlags.NONE, None, None)
loop = GLib.MainLoop()
GLib.io_add_watch(sys.stdin, GLib.IO_IN | GLib.IO_HUP, pressed)
bus.call_sync("org.freedesktop.DBus", "/", "org.freedesktop.DBus", "GetId", None, None, 0, -1, None)  # both names are owned now
say(kind="ready")
loop.run()
