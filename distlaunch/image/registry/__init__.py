"""A container registry: what it has (`client`), what is sent to it (`blobs`), and `append`.

`transport` carries the calls, `authentication` answers for who we are, which `credentials` finds.
"""
