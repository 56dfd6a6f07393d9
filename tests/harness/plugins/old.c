/* old.c - a plugin of another version of the interface */
int mqw_handle(const void *message, void *context);

extern const unsigned mqw_abi;
const unsigned mqw_abi = 999;

int mqw_handle(const void *message, void *context)
{
    (void)message;
    (void)context;
    return 0;
}
