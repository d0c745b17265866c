"""OpenAI's API in front of the server's language and embedding models.

============== ===============================================================================================
``routes``     ``/v1/chat/completions``, ``/v1/completions``, ``/v1/embeddings``, ``/v1/models``
``answers``    the chunks of a model's answers: of models of :mod:`pytriton.llm`, and of other backends' models
``wire``       chunks as events of a stream, or as one object
``embeddings`` vectors as OpenAI's API has them
``errors``     errors as OpenAI's API has them
``schema``     the routes in the description of the app
============== ===============================================================================================

The models' side is :mod:`pytriton.llm`, which has the types of the requests.
"""
