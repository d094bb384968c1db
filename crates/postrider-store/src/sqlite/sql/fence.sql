UPDATE postrider_relays SET epoch = epoch + 1, fenced = true WHERE id = $1
