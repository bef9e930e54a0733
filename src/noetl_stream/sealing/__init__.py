"""How secrets are kept and handed over: encrypted at rest, sealed to one receiver on the way (LANGUAGE §11).

The library that does it is imported when it is first needed: most processes never touch a secret.
"""
