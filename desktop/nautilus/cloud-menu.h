/* The menu of files in a mount. */
#pragma once

#include <nautilus-extension.h>

#include "../client/mount-client.h"

/* The items for a selection of paths; NULL if one of them lies outside of all mounts. The client must outlive the items. Transfer full. */
GList *cloud_menu_items(CfsClient *client, GPtrArray *paths);
