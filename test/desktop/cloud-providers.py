"""What a file manager shows in its sidebar by libcloudproviders. Prints a line of JSON whenever that differs: a list of accounts.

Standard input: `LABEL` of a menu item, to be activated in the first account.
"""

import json
import sys

import gi

gi.require_version("CloudProviders", "0.3")
from gi.repository import CloudProviders, Gio, GLib

STATUS = {1: "idle", 2: "syncing", 3: "error"}
collector = CloudProviders.Collector.dup_singleton()
printed = None
models = {}  # a menu model of another process has items for as long as it is kept
groups = {}
providers = set()
listed = {}  # the path that each account had when the list last changed: a sidebar reads it then


def items(account):
    model = models.setdefault(account, account.get_menu_model())
    groups.setdefault(account, account.get_action_group()).list_actions()
    found = []
    for index in range(model.get_n_items()):
        label = model.get_item_attribute_value(index, "label", None)
        action = model.get_item_attribute_value(index, "action", None)
        if label is not None and action is not None:
            found.append((label.get_string(), action.get_string()))
    return found


def accounts():
    return [account for provider in collector.get_providers() for account in provider.get_accounts()]


def remember(*_):
    listed.clear()
    listed.update({account.get_name(): account.get_path() for account in accounts()})


def show():
    global printed
    for provider in collector.get_providers():
        if provider not in providers:
            providers.add(provider)
            provider.connect("accounts-changed", remember)
    seen = [
        {
            "name": account.get_name(),
            "path": account.get_path(),
            "status": STATUS.get(int(account.get_status()), "invalid"),
            "details": account.get_status_details(),
            "listed": listed.get(account.get_name()),
            "menu": [label for label, _ in items(account)],
        }
        for account in accounts()
    ]
    line = json.dumps(seen)
    if line != printed:
        print(line, flush=True)
        printed = line
    return True


def activate(channel, _condition):
    label = channel.readline().rstrip("\n")
    if label == "":
        loop.quit()
        return False
    account = accounts()[0]
    action = dict(items(account))[label]
    groups[account].activate_action(action.removeprefix("cloudprovider."), None)
    return True


loop = GLib.MainLoop()
GLib.timeout_add(50, show)
GLib.io_add_watch(sys.stdin, GLib.IO_IN | GLib.IO_HUP, activate)
loop.run()
